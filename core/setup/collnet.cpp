// SPDX-License-Identifier: Apache-2.0
#include "core/setup/collnet.hpp"

#include <algorithm>
#include <cstring>

#include "core/base/log.hpp"
#include "core/peers/reach.hpp"
#include "core/plugin/collnet_registry.hpp"
#include "core/setup/comm_setup.hpp"

namespace plexus {
namespace {

constexpr int kKinds = 4;  // sum, product, maximum, minimum

/// What a rank sends to the others, as bytes.
struct Offer {
  uint32_t devices = 0;
  std::array<uint8_t, kDataTypeCount> kinds{};
  char missing[256] = {};
};

Offer refuse(const std::string& why) {
  Offer offer;
  std::memcpy(offer.missing, why.data(), std::min(why.size(), sizeof(offer.missing) - 1));
  return offer;
}

Result<Offer> make_offer(const CollnetContext& context, uint32_t slot_bytes) {
  Offer offer;
  offer.devices = static_cast<uint32_t>(context.devices().size());
  for (const plexus_collnet_properties_t& device : context.devices()) {
    if (device.message_bytes_max < slot_bytes) {
      return refuse(fmt::format(
          "{} supports messages of up to {} bytes and slots have {}: lower NCCL_BUFFSIZE",
          context.plugin().name, device.message_bytes_max, slot_bytes));
    }
  }
  if (offer.devices == 0) {
    return refuse(fmt::format("{} has no device on that host", context.plugin().name));
  }
  for (int type = 0; type < kDataTypeCount; ++type) {
    for (int kind = 0; kind < kKinds; ++kind) {
      PLEXUS_TRY(supported, context.supports(type, kind));
      offer.kinds[static_cast<size_t>(type)] |=
          static_cast<uint8_t>((supported ? 1U : 0U) << static_cast<unsigned>(kind));
    }
  }
  return offer;
}

/// Opens this rank's plugin. An Error only when the user named a plugin that is unusable.
Result<Offer> open(const SetupContext& context, const CommSetup& setup, CollnetOpen& made) {
  PLEXUS_TRY(plugin, find_collnet_plugin({.plugin = setup.config.collnet_plugin,
                                          .net_plugins = setup.config.net_plugin,
                                          .folders = setup.config.plugin_path,
                                          .cache = context.collnet_plugins}));
  if (plugin == nullptr) {
    return refuse(
        "there is no collnet plugin: set PLEXUS_COLLNET_PLUGIN (aggregator, or a "
        "library), or use a net plugin that has one");
  }
  PLEXUS_TRY(network, CollnetContext::create(plugin, setup.group));
  PLEXUS_INFO(kInit, "using collnet {} {} with {} devices; found at {}", plugin->name,
              plugin->version, network.devices().size(), plugin->path.string());
  PLEXUS_TRY(offer, make_offer(network, setup.slot_bytes));
  made.context = std::make_unique<CollnetContext>(std::move(network));
  return offer;
}

int count_least(const ChannelOrder& order) {
  const auto nranks = static_cast<int>(order.ring.size());
  int least = nranks;
  for (size_t node = 0; node < order.nodes.size(); ++node) {
    const int end = node + 1 < order.nodes.size() ? order.nodes[node + 1] : nranks;
    least = std::min(least, end - order.nodes[node]);
  }
  return least;
}

Result<CollnetAbility> join_offers(const Gathered& blobs, int heads_max) {
  CollnetAbility ability;
  ability.heads = heads_max;
  ability.kinds.fill((1U << kKinds) - 1);
  for (size_t rank = 0; rank < blobs.size(); ++rank) {
    Offer offer;
    if (blobs[rank].size() != sizeof(offer)) {
      return fail(Code::kInvalidUsage,
                  "rank {} runs another version of Plexus: use the same version on all ranks",
                  rank);
    }
    std::memcpy(&offer, blobs[rank].data(), sizeof(offer));
    offer.missing[sizeof(offer.missing) - 1] = '\0';
    if (offer.missing[0] != '\0' && ability.missing.empty()) {
      ability.missing = fmt::format("on rank {}: {}", rank, offer.missing);
    }
    ability.heads = std::min(ability.heads, static_cast<int>(std::min(offer.devices, 1U << 16)));
    for (size_t type = 0; type < ability.kinds.size(); ++type) {
      ability.kinds[type] &= offer.kinds[type];
    }
  }
  return ability;
}

/// Why no collnet is opened; empty: it is tried. Derived from values that all ranks share.
std::string why_not(const CommSetup& setup, const CommTopology& topology) {
  const std::vector<PeerInfo>& infos = *setup.infos;
  const auto nodes = topology.orders.front().nodes.size();
  for (size_t rank = 0; rank < infos.size(); ++rank) {
    if (infos[rank].collnet_threshold == 0) {
      return rank == 0 ? "NCCL_COLLNET_ENABLE is not 1"
                       : fmt::format("NCCL_COLLNET_ENABLE is not 1 on rank {}", rank);
    }
    if (nodes < infos[rank].collnet_threshold) {
      return fmt::format("{} hosts, NCCL_COLLNET_NODE_THRESHOLD is {}", nodes,
                         infos[rank].collnet_threshold);
    }
  }
  return are_in_one_process(infos) ? "all ranks are in one process" : "";
}

}  // namespace

bool wants_collnet(int64_t setting, const CommConfig& config) {
  return setting == 1 || (setting < 0 && config.collnet_enable);
}

Result<CollnetOpen> agree_on_collnet(const SetupContext& context,
                                     const CommSetup& setup,
                                     const std::atomic<bool>* give_up) {
  const CommTopology& topology = *setup.topology;
  CollnetOpen made;
  made.ability.missing = why_not(setup, topology);
  if (!made.ability.missing.empty()) {
    return made;
  }
  PLEXUS_TRY(offer, open(context, setup, made));
  std::string bytes(sizeof(Offer), '\0');
  std::memcpy(bytes.data(), &offer, bytes.size());
  PLEXUS_TRY(blobs, setup.exchange->all_gather(std::move(bytes), give_up));
  PLEXUS_TRY(ability, join_offers(blobs, count_least(topology.orders.front())));
  made.ability = std::move(ability);
  if (!made.ability.missing.empty()) {
    made.context.reset();
    PLEXUS_INFO(kInit, "no collnet: {}", made.ability.missing);
  }
  return made;
}

}  // namespace plexus
