// SPDX-License-Identifier: Apache-2.0
#include "core/setup/tuner_facts.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "core/peers/reach.hpp"
#include "core/transport/network/xdc_routes.hpp"
#include "core/tuning/candidate.hpp"

namespace plexus {
namespace {

constexpr uint64_t kMbitOfGb = 8000;
constexpr uint32_t kNetChannels = 1;

/// The smallest value that a rank was given; 0: none was.
uint32_t smallest_set(std::span<const PeerInfo> infos, uint32_t PeerInfo::*setting) {
  uint32_t smallest = 0;
  for (const PeerInfo& info : infos) {
    if (info.*setting > 0) {
      smallest = smallest == 0 ? info.*setting : std::min(smallest, info.*setting);
    }
  }
  return smallest;
}

}  // namespace

/// Counts the pairs of ranks in different datacenters and takes the worst path between those.
void describe_xdc_links(const CommTopology& topology,
                        const LinkShares& shares,
                        plexus_tuner_comm_t& comm) {
  const DatacenterMap& map = topology.datacenters;
  plexus_tuner_link_t& xdc = comm.links[PLEXUS_LINK_XDC];
  xdc = {};
  std::vector<uint32_t> members(map.count());
  for (const int datacenter : topology.datacenter_of) {
    ++members[static_cast<size_t>(datacenter)];
  }
  for (size_t from = 0; from < map.count(); ++from) {
    for (size_t to = 0; to < from; ++to) {
      const DatacenterPath& path = map.path(from, to);
      xdc.count += members[from] * members[to];
      xdc.latency_ns = std::max(xdc.latency_ns, path.latency_ns.value_or(0));
      const auto share = shares.find({static_cast<uint32_t>(to), static_cast<uint32_t>(from)});
      const uint64_t left = share == shares.end() ? kWholeShare : share->second;
      const uint64_t whole = path.mbit_per_s.value_or(0);
      const uint64_t known = whole == 0 ? 0 : std::max<uint64_t>(whole * left / kWholeShare, 1);
      if (known > 0 && (xdc.bandwidth_mbit_per_s == 0 || known < xdc.bandwidth_mbit_per_s)) {
        xdc.bandwidth_mbit_per_s = known;
      }
    }
  }
}

namespace {

/// All zero if a rank computes on the host.
plexus_tuner_cuda_t describe_cuda(std::span<const PeerInfo> infos, const CommTopology& topology) {
  plexus_tuner_cuda_t cuda{};
  if (!std::all_of(infos.begin(), infos.end(), [](const auto& info) { return info.on_cuda(); })) {
    return cuda;
  }
  cuda.sm = std::numeric_limits<uint32_t>::max();
  cuda.blocks = std::numeric_limits<uint32_t>::max();
  cuda.memory_mbit_per_s = std::numeric_limits<uint64_t>::max();
  for (const PeerInfo& info : infos) {
    const uint32_t sharers = sharers_of(infos, info);
    cuda.sm = std::min(cuda.sm, static_cast<uint32_t>(std::max(info.device_sm, 1)));
    cuda.ranks_per_device = std::max(cuda.ranks_per_device, sharers);
    cuda.blocks = std::min(cuda.blocks, info.device_blocks / sharers);
    cuda.memory_mbit_per_s =
        std::min(cuda.memory_mbit_per_s, info.device_memory_gb_per_s * kMbitOfGb);
  }
  cuda.nvlink = topology.nvlink ? 1 : 0;
  return cuda;
}

}  // namespace

plexus_tuner_comm_t describe_to_tuner(std::span<const PeerInfo> infos,
                                      const CommTopology& topology,
                                      uint64_t group,
                                      uint32_t slot_bytes) {
  std::map<uint64_t, uint32_t> hosts;
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> core_sets;  // one set per bound rank
  for (const PeerInfo& info : infos) {
    ++hosts[info.host_hash];
    core_sets[{info.host_hash, info.core_set}] = std::max(info.cores, 1U);
  }
  plexus_tuner_comm_t comm{};
  comm.struct_size = sizeof(comm);
  comm.nranks = static_cast<uint32_t>(infos.size());
  comm.nnodes = static_cast<uint32_t>(hosts.size());
  comm.ndatacenters = static_cast<uint32_t>(topology.datacenters.count());
  for (const auto& [host, members] : hosts) {
    comm.ranks_per_node_max = std::max(comm.ranks_per_node_max, members);
  }
  std::map<uint64_t, uint32_t> cores;
  for (const auto& [host_and_set, count] : core_sets) {
    cores[host_and_set.first] += count;
  }
  comm.cores_per_node_min = std::numeric_limits<uint32_t>::max();
  for (const auto& [host, count] : cores) {
    comm.cores_per_node_min = std::min(comm.cores_per_node_min, count);
  }
  comm.comm_id = group;
  comm.slot_bytes = slot_bytes;
  const ReachCounts pairs = count_pairs(infos);
  comm.links[PLEXUS_LINK_PROCESS].count = static_cast<uint32_t>(pairs.process);
  comm.links[PLEXUS_LINK_HOST].count = static_cast<uint32_t>(pairs.device + pairs.shared_memory);
  describe_xdc_links(topology, {}, comm);
  comm.cuda = describe_cuda(infos, topology);
  if (comm.cuda.sm > 0) {
    const auto mbit_per_s = static_cast<uint64_t>(topology.near_gb_per_s * double{kMbitOfGb});
    comm.links[PLEXUS_LINK_PROCESS].bandwidth_mbit_per_s = mbit_per_s;
    comm.links[PLEXUS_LINK_HOST].bandwidth_mbit_per_s = mbit_per_s;
  }
  comm.links[PLEXUS_LINK_NET].count =
      static_cast<uint32_t>(pairs.network) - comm.links[PLEXUS_LINK_XDC].count;
  return comm;
}

void describe_measured_links(const HostCopyMethods& copy_methods, plexus_tuner_comm_t& comm) {
  if (copy_methods.measured && comm.cuda.sm == 0) {
    comm.links[PLEXUS_LINK_HOST].latency_ns = message_latency_ns(copy_methods);
    comm.links[PLEXUS_LINK_HOST].bandwidth_mbit_per_s = bandwidth_mbit_per_s(copy_methods);
  }
}

uint32_t choose_slot_bytes(std::span<const PeerInfo> infos) {
  const uint32_t smallest = smallest_set(infos, &PeerInfo::slot_bytes);
  if (smallest > 0) {
    return smallest;
  }
  if (count_pairs(infos).network > 0) {
    return kSlotBytesOfNetwork;
  }
  // Slots take memory of a device for every pair of its ranks.
  constexpr uint32_t kSharersMax = 8;
  const bool on_devices = std::all_of(infos.begin(), infos.end(), [&](const PeerInfo& info) {
    return info.on_cuda() && sharers_of(infos, info) <= kSharersMax;
  });
  return on_devices ? kSlotBytesOfDevices : kSlotBytesOfMemory;
}

uint32_t choose_net_channels(std::span<const PeerInfo> infos) {
  const uint32_t smallest = smallest_set(infos, &PeerInfo::net_channels);
  return std::min(smallest > 0 ? smallest : kNetChannels, bounds_of_channels(infos).second);
}

uint32_t blocks_of_rank(std::span<const PeerInfo> infos) {
  uint32_t least = 0;
  for (const PeerInfo& info : infos) {
    if (info.on_cuda()) {
      // One block of the device is reserved for sends and receives.
      const auto blocks =
          static_cast<uint32_t>((std::max(info.device_blocks, 1U) - 1) / sharers_of(infos, info));
      least = least == 0 ? std::max(blocks, 1U) : std::min(least, std::max(blocks, 1U));
    }
  }
  return least;
}

std::pair<uint32_t, uint32_t> bounds_of_channels(std::span<const PeerInfo> infos) {
  uint32_t least = 1;
  uint32_t most = 64;
  for (const PeerInfo& info : infos) {
    least = std::max(least, info.min_channels);
    most = std::min(most, info.max_channels);
  }
  if (const uint32_t blocks = blocks_of_rank(infos); blocks > 0) {
    most = std::min(most, blocks);
  }
  return {std::min(least, most), most};
}

}  // namespace plexus
