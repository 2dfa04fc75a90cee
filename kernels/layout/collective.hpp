// SPDX-License-Identifier: Apache-2.0
// The collectives, with the names that algorithms, plans and the command line use.
#pragma once

#include <cstdint>

namespace plexus {

enum class Collective : uint8_t {
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kSend,
  kRecv,
};
inline constexpr int kCollectiveCount = 10;

/// The name in user input (`plexus perf NAME`, NCCL_ALGO's "name:list").
constexpr const char* name(Collective collective) {
  constexpr const char* kNames[kCollectiveCount] = {
      "all_reduce", "broadcast", "reduce",  "all_gather", "reduce_scatter",
      "alltoall",   "gather",    "scatter", "send",       "recv"};
  return kNames[static_cast<int>(collective)];
}

constexpr bool is_rooted(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce ||
         collective == Collective::kGather || collective == Collective::kScatter;
}

constexpr bool is_reduction(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}

constexpr bool is_point_to_point(Collective collective) {
  return collective == Collective::kSend || collective == Collective::kRecv;
}

}  // namespace plexus
