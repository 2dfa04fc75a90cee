// SPDX-License-Identifier: Apache-2.0
#include "core/setup/networks.hpp"

#include <algorithm>

#include "core/base/log.hpp"
#include "core/peers/reach.hpp"
#include "core/plugin/registry.hpp"
#include "core/setup/gdr.hpp"
#include "core/transport/network/net_message.hpp"

namespace plexus {
namespace {

void write_line(NetLogLevel level, std::string_view text) {
  if (level == NetLogLevel::kWarn) {
    PLEXUS_WARN("{}", text);
  } else if (level == NetLogLevel::kChoice) {
    PLEXUS_INFO(kInit, "{}", text);
  } else {
    PLEXUS_INFO(kNet, "{}", text);
  }
}

bool needs_net(const CommSetup& setup) {
  const std::vector<PeerInfo>& infos = *setup.infos;
  const PeerInfo& mine = infos[static_cast<size_t>(setup.rank)];
  return std::any_of(infos.begin(), infos.end(), [&](const PeerInfo& info) {
    return &info != &mine && reach_of(mine, info) == PeerReach::kNetwork;
  });
}

Result<void> exchange_offers(CommSetup& setup, const std::atomic<bool>* give_up) {
  PLEXUS_TRY(offers, setup.exchange->all_gather(setup.nets->offers(), give_up));
  PLEXUS_TRY(setup.nets->learn_offers(offers));
  if (setup.nets->knows_fabrics()) {
    PLEXUS_TRY(mine, setup.nets->paths(setup.rank));
    PLEXUS_TRY(paths, setup.exchange->all_gather(std::move(mine), give_up));
    PLEXUS_TRY(setup.nets->learn_paths(paths));
  }
  return ok();
}

/// [nets][devices]; empty: the rank computes on the host.
Result<std::vector<std::vector<GpuSlots>>> choose_all_gpu_slots(const SetupContext& context,
                                                                const CommSetup& setup,
                                                                const std::vector<OpenNet>& nets) {
  std::vector<std::vector<GpuSlots>> all;
  const PeerInfo& mine = (*setup.infos)[static_cast<size_t>(setup.rank)];
  for (size_t net = 0; net < nets.size() && mine.on_cuda(); ++net) {
    PLEXUS_TRY(slots, choose_gpu_slots(setup.rank, mine,
                                       {.config = &setup.config,
                                        .net = &nets[net].context,
                                        .cache = context.topologies}));
    all.push_back(std::move(slots));
  }
  return all;
}

}  // namespace

Result<std::unique_ptr<NetSet>> open_networks(const SetupContext& context,
                                              const CommSetup& setup,
                                              const CommConfig& config) {
  if (!needs_net(setup)) {
    return std::make_unique<NetSet>(std::vector<OpenNet>());
  }
  NetPluginOptions options;
  options.plugins = setup.config.net_plugin;
  options.network = setup.config.net.empty() ? config.net_name : setup.config.net;
  options.all = setup.config.allnet;
  options.falls_back = setup.config.net_fallback;
  options.folders = setup.config.plugin_path;
  options.load = {.abi = setup.config.net_abi, .v11 = setup.config.net_v11};
  options.cache = context.net_plugins;
  PLEXUS_TRY(nets, open_nets(options, {.comm_id = setup.group,
                                       .traffic_class = config.traffic_class,
                                       .log = write_line,
                                       .settings = setting_value}));
  PLEXUS_TRY(gpu_slots, choose_all_gpu_slots(context, setup, nets));
  return std::make_unique<NetSet>(std::move(nets), std::move(gpu_slots));
}

Result<void> agree_on_networks(const SetupContext& context,
                               CommSetup& setup,
                               const CommConfig& config,
                               const std::atomic<bool>* give_up) {
  if (count_pairs(*setup.infos).network == 0) {
    return ok();
  }
  PLEXUS_TRY(nets, open_networks(context, setup, config));
  setup.nets = std::move(nets);
  return exchange_offers(setup, give_up);
}

Result<void> agree_on_networks(const SetupContext& context,
                               std::span<CommSetup> setups,
                               const CommConfig& config) {
  if (count_pairs(*setups.front().infos).network == 0) {
    return ok();
  }
  std::vector<std::string> offers;
  for (CommSetup& setup : setups) {
    PLEXUS_TRY(nets, open_networks(context, setup, config));
    setup.nets = std::move(nets);
    offers.push_back(setup.nets->offers());
  }
  const Gathered all_offers(offers);
  for (CommSetup& setup : setups) {
    PLEXUS_TRY(setup.nets->learn_offers(all_offers));
  }
  if (!setups.front().nets->knows_fabrics()) {
    return ok();
  }
  std::vector<std::string> paths;
  for (const CommSetup& setup : setups) {
    PLEXUS_TRY(mine, setup.nets->paths(setup.rank));
    paths.push_back(std::move(mine));
  }
  const Gathered all_paths(paths);
  for (CommSetup& setup : setups) {
    PLEXUS_TRY(setup.nets->learn_paths(all_paths));
  }
  return ok();
}

Result<uint32_t> fit_slots(const CommSetup& setup, uint32_t slot_bytes) {
  const auto limit = setup.nets == nullptr ? std::nullopt : setup.nets->message_limit();
  if (!limit || limit->bytes >= sizeof(NetHeader) + slot_bytes) {
    return slot_bytes;
  }
  constexpr uint64_t kMessageBytesMin = sizeof(NetHeader) + kCacheLine;
  if (limit->bytes < kMessageBytesMin) {
    return fail(Code::kInvalidUsage,
                "device {} of network {} carries messages of up to {} bytes (message_bytes_max), "
                "and Plexus needs {}: choose another network (NCCL_NET_PLUGIN, NCCL_NET)",
                limit->device, limit->net, limit->bytes, kMessageBytesMin);
  }
  const auto fitting =
      static_cast<uint32_t>((limit->bytes - sizeof(NetHeader)) / kCacheLine * kCacheLine);
  PLEXUS_INFO(kInit,
              "slots of {} bytes instead of {}, because device {} of network {} carries messages "
              "of up to {} bytes",
              fitting, slot_bytes, limit->device, limit->net, limit->bytes);
  return fitting;
}

}  // namespace plexus
