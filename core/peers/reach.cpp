// SPDX-License-Identifier: Apache-2.0
#include "core/peers/reach.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

namespace plexus {
namespace {

/// All that reach_of() reads of a rank: ranks with equal traits reach the same ranks.
auto traits_of(const PeerInfo& info) {
  const auto bytes = [](const auto& array) {
    return std::string_view(reinterpret_cast<const char*>(array), sizeof array);
  };
  return std::make_tuple(info.host_hash, info.process_id, info.pid_namespace, info.shm_disable,
                         info.p2p_disable, info.ipc_disable, info.on_cuda(),
                         bytes(info.device_uuid), bytes(info.reached_devices));
}

/// Ranks of equal traits, which a communicator of many ranks has few of.
struct Alike {
  const PeerInfo* info;  // the first of them
  uint64_t members = 0;
};

/// The classes in the order of their first members, and for every rank the index of its class.
std::pair<std::vector<Alike>, std::vector<size_t>> list_alike(std::span<const PeerInfo> infos) {
  std::vector<Alike> all;
  std::vector<size_t> of_rank;
  std::map<decltype(traits_of(infos.front())), size_t> found;
  auto last = found.end();  // mostly that of the next rank as well
  for (const PeerInfo& info : infos) {
    const auto traits = traits_of(info);
    if (last == found.end() || last->first != traits) {
      last = found.try_emplace(traits, all.size()).first;
    }
    if (last->second == all.size()) {
      all.push_back({.info = &info});
    }
    ++all[last->second].members;
    of_rank.push_back(last->second);
  }
  return {std::move(all), std::move(of_rank)};
}

}  // namespace

bool share_process(const PeerInfo& a, const PeerInfo& b) {
  return a.host_hash == b.host_hash && a.process_id == b.process_id;
}

bool are_in_one_process(std::span<const PeerInfo> infos) {
  return std::all_of(infos.begin(), infos.end(),
                     [&](const PeerInfo& info) { return share_process(info, infos.front()); });
}

PeerReach reach_of(const PeerInfo& a, const PeerInfo& b) {
  if (a.host_hash != b.host_hash) {
    return PeerReach::kNetwork;
  }
  // Where the devices of ranks of one process reach each other, their Fifos lie on a device.
  if (share_process(a, b) && a.p2p_disable == 0 && b.p2p_disable == 0) {
    return PeerReach::kProcess;
  }
  // CUDA IPC needs one pid namespace.
  if (!share_process(a, b) && a.pid_namespace == b.pid_namespace && reach_each_other(a, b)) {
    return PeerReach::kDevice;
  }
  // If they turn out not to share memory in init, shm_disable is set for one of them.
  const bool map_memory = a.shm_disable == 0 && b.shm_disable == 0;
  return map_memory ? PeerReach::kSharedMemory : PeerReach::kNetwork;
}

ReachCounts count_pairs(std::span<const PeerInfo> infos) {
  const std::vector<Alike> alike = list_alike(infos).first;
  ReachCounts counts;
  for (size_t i = 0; i < alike.size(); ++i) {
    for (size_t j = i; j < alike.size(); ++j) {
      const uint64_t pairs = i == j ? alike[i].members * (alike[i].members - 1) / 2
                                    : alike[i].members * alike[j].members;
      switch (reach_of(*alike[i].info, *alike[j].info)) {
        case PeerReach::kProcess:
          counts.process += pairs;
          break;
        case PeerReach::kDevice:
          counts.device += pairs;
          break;
        case PeerReach::kSharedMemory:
          counts.shared_memory += pairs;
          break;
        case PeerReach::kNetwork:
          counts.network += pairs;
          break;
      }
    }
  }
  return counts;
}

std::vector<std::vector<int>> group_ranks_by_reach(std::span<const PeerInfo> infos) {
  const auto [alike, alike_of] = list_alike(infos);
  const auto reaches = [&alike = alike](size_t a, size_t b) {
    return reach_of(*alike[a].info, *alike[b].info) != PeerReach::kNetwork;
  };
  std::vector<std::vector<int>> groups;
  std::vector<std::vector<size_t>> alike_in;  // [groups]: the classes that have a member there
  for (size_t rank = 0; rank < infos.size(); ++rank) {
    const size_t own = alike_of[rank];
    const auto room = std::find_if(alike_in.begin(), alike_in.end(), [&](const auto& members) {
      return std::all_of(members.begin(), members.end(),
                         [&](size_t each) { return reaches(own, each); });
    });
    const auto group = static_cast<size_t>(room - alike_in.begin());
    if (room == alike_in.end()) {
      alike_in.emplace_back();
      groups.emplace_back();
    }
    if (auto& members = alike_in[group];
        std::find(members.begin(), members.end(), own) == members.end()) {
      members.push_back(own);
    }
    groups[group].push_back(static_cast<int>(rank));
  }
  return groups;
}

}  // namespace plexus
