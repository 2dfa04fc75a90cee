// SPDX-License-Identifier: Apache-2.0
#include "core/transport/network/net_set.hpp"

#include <algorithm>
#include <set>

#include "core/base/text.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

/// More fabrics of one network than this are not asked about: their paths count as unknown.
constexpr size_t kFabricsMax = 64;

const NetOffer* find_net(const NetOffers& offers, std::string_view name) {
  const auto at = std::find_if(offers.begin(), offers.end(), [&](const NetOffer& each) {
    return lower(each.name) == lower(name);
  });
  return at == offers.end() ? nullptr : &*at;
}

}  // namespace

GpuSlots NetSet::gpu_slots_of(size_t net, uint32_t device) const {
  const bool is_known = net < gpu_slots_.size() && device < gpu_slots_[net].size();
  return is_known ? gpu_slots_[net][device] : GpuSlots{};
}

NetOffer NetSet::offer_of(size_t net) const {
  const NetContext& context = nets_[net].context;
  NetOffer offer{.name = nets_[net].name, .devices = {}};
  const uint32_t count = std::min(context.device_count(), static_cast<uint32_t>(kNetDevicesUsed));
  for (uint32_t device = 0; device < count; ++device) {
    const NetProperties& properties = context.properties(device);
    const GpuSlots slots = gpu_slots_of(net, device);
    offer.devices.push_back({.name = properties.name,
                             .fabric_id = properties.fabric_id,
                             .rail_id = properties.rail_id,
                             .plane_id = properties.plane_id,
                             .message_bytes_max = properties.message_bytes_max,
                             .reads_gpu = slots.send_kinds != 0,
                             .writes_gpu = slots.recv_kinds != 0});
  }
  return offer;
}

std::string NetSet::offers() const {
  NetOffers mine;
  for (size_t net = 0; net < nets_.size(); ++net) {
    mine.push_back(offer_of(net));
  }
  return encode_offers(mine);
}

Result<void> NetSet::learn_offers(const Gathered& blobs) {
  PLEXUS_DCHECK(kinds_.empty() && kind_of_.empty(), kinds_.size());  // once
  for (size_t kind = 0; kind < blobs.kinds(); ++kind) {
    PLEXUS_TRY(offers, decode_offers(blobs.blob_of_kind(kind)));
    kinds_.push_back(offers);
  }
  for (size_t rank = 0; rank < blobs.size(); ++rank) {
    kind_of_.push_back(blobs.kind_of(rank));
  }
  return ok();
}

std::optional<NetSet::MessageLimit> NetSet::message_limit() const {
  std::optional<MessageLimit> limit;
  for (const NetOffers& offers : kinds_) {
    for (const NetOffer& offer : offers) {
      for (const NetDeviceOffer& device : offer.devices) {
        if (!limit || device.message_bytes_max < limit->bytes) {
          limit = {.bytes = device.message_bytes_max, .net = offer.name, .device = device.name};
        }
      }
    }
  }
  return limit;
}

bool NetSet::knows_fabrics() const {
  for (const NetOffers& offers : kinds_) {
    for (const NetOffer& offer : offers) {
      if (std::any_of(offer.devices.begin(), offer.devices.end(),
                      [](const NetDeviceOffer& device) { return device.fabric_id.has_value(); })) {
        return true;
      }
    }
  }
  return false;
}

/// The fabrics in which ranks have devices of the network `name`.
std::set<uint64_t> NetSet::fabrics_of(std::string_view name) const {
  std::set<uint64_t> fabrics;
  for (const NetOffers& offers : kinds_) {
    if (const NetOffer* const offer = find_net(offers, name); offer != nullptr) {
      for (const NetDeviceOffer& device : offer->devices) {
        if (device.fabric_id && fabrics.size() < kFabricsMax) {
          fabrics.insert(*device.fabric_id);
        }
      }
    }
  }
  return fabrics;
}

Result<std::string> NetSet::paths(int rank) const {
  FabricPaths gathered;
  for (const OpenNet& net : nets_) {
    const auto first = std::find_if(kind_of_.begin(), kind_of_.end(), [&](uint32_t kind) {
      return find_net(kinds_[kind], net.name) != nullptr;
    });
    if (first - kind_of_.begin() != rank) {
      continue;
    }
    const std::set<uint64_t> fabrics = fabrics_of(net.name);
    for (const uint64_t source : fabrics) {
      for (const uint64_t target : fabrics) {
        PLEXUS_TRY(path, net.context.net_path(source, target));
        gathered.add(net.name, source, target, path);
      }
    }
  }
  return gathered.encode();
}

Result<void> NetSet::learn_paths(const Gathered& blobs) {
  for (size_t kind = 0; kind < blobs.kinds(); ++kind) {
    PLEXUS_TRY(paths_.decode(blobs.blob_of_kind(kind)));
  }
  return ok();
}

NetSet::Path NetSet::path_of(const NetRoute& route,
                             bool sends,
                             const NetOffers& from,
                             const NetOffers& to) {
  const size_t net = sends ? route.source_net : route.target_net;
  const uint32_t device = sends ? route.source_device : route.target_device;
  const GpuSlots slots = gpu_slots_of(net, device);
  return {.context = &nets_.at(net).context,
          .device = device,
          .route = describe_route(route, from, to),
          .apart = travels_apart(route, from, to),
          .gpu_kinds = sends ? slots.send_kinds : slots.recv_kinds,
          .flushes = slots.flushes};
}

Result<NetSet::Path> NetSet::find_path(
    int rank, int source, int target, uint32_t channel, std::span<const PeerInfo> infos) {
  PLEXUS_TRY(paths, find_paths(rank, source, target, channel, infos));
  return paths.front();
}

Result<std::vector<NetSet::Path>> NetSet::find_paths(
    int rank, int source, int target, uint32_t channel, std::span<const PeerInfo> infos) {
  PLEXUS_DCHECK(rank == source || rank == target, rank, source, target);
  const NetOffers& from = kinds_[kind_of_.at(static_cast<size_t>(source))];
  const NetOffers& to = kinds_[kind_of_.at(static_cast<size_t>(target))];
  const std::vector<NetRoute> routes = list_routes(from, to, paths_, channel);
  if (routes.empty()) {
    return fail(Code::kInvalidUsage,
                "{} and {} have no network in common whose devices reach each other: the first has "
                "{}, the second {}; install the same plugins on both hosts, with the same "
                "NCCL_NET_PLUGIN and NCCL_NET",
                describe_rank(source, infos[static_cast<size_t>(source)]),
                describe_rank(target, infos[static_cast<size_t>(target)]), describe_offers(from),
                describe_offers(to));
  }
  const bool sends = rank == source;
  std::vector<Path> paths;
  paths.reserve(routes.size());
  for (const NetRoute& route : routes) {
    paths.push_back(path_of(route, sends, from, to));
  }
  return paths;
}

}  // namespace plexus
