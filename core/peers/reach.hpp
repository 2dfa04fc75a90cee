// SPDX-License-Identifier: Apache-2.0
// Who reaches whom, and by what: the one answer for transports, topology, tuner and networks. Pure
// functions of what ranks said of themselves, so that all ranks have the same answers.
//
//   if (reach_of(mine, peers) == PeerReach::kNetwork) {
//     // a network plugin is needed between these two
//   }
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/peers/peer_info.hpp"

namespace plexus {

enum class PeerReach : uint8_t {
  kProcess,       // addresses of one process
  kDevice,        // devices of two processes that access each other (CUDA IPC)
  kSharedMemory,  // memory of the host that both map
  kNetwork,
};

/// The nearest that two ranks have in common. Symmetric.
[[nodiscard]] PeerReach reach_of(const PeerInfo& a, const PeerInfo& b);

[[nodiscard]] bool share_process(const PeerInfo& a, const PeerInfo& b);
[[nodiscard]] bool are_in_one_process(std::span<const PeerInfo> infos);

/// The pairs of ranks by their reach.
struct ReachCounts {
  uint64_t process = 0;
  uint64_t device = 0;
  uint64_t shared_memory = 0;
  uint64_t network = 0;
};
[[nodiscard]] ReachCounts count_pairs(std::span<const PeerInfo> infos);

/// Ranks in groups, in each of which every two reach each other without a network; ascending, by
/// their lowest rank. A rank joins the first group that has room for it.
[[nodiscard]] std::vector<std::vector<int>> group_ranks_by_reach(std::span<const PeerInfo> infos);

}  // namespace plexus
