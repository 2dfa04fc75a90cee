// SPDX-License-Identifier: Apache-2.0
// The result of a search: for each channel, the order of a node's ranks, the NICs through which the
// channel enters and leaves, and the channel's bandwidth. NCCL calls it a graph.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "core/topo/types.hpp"

namespace plexus {

enum class Pattern : uint8_t {
  kBalancedTree = 1,  // parent and one child on the first rank, the other child on the second
  kSplitTree = 2,     // parent on the first rank, children on the second
  kTree = 3,          // all on the first rank
  kRing = 4,
  kNvls = 5,
};

struct ChannelNets {
  int in = 0;  // device numbers of the net plugin; 0 in channels found inside one node
  int out = 0;
  friend bool operator==(const ChannelNets&, const ChannelNets&) = default;
};

struct ChannelGraph {
  Pattern pattern = Pattern::kRing;
  int cross_nic = 0;         // 2: channels come in pairs with swapped NICs
  float intra_gb_per_s = 0;  // per channel
  float inter_gb_per_s = 0;
  float latency_us = 0;
  PathType intra_type = PathType::kLoc;
  PathType inter_type = PathType::kPix;
  bool same_channels = false;
  int hops = 0;
  std::vector<std::vector<int>> ranks;  // by channel; NVLS: only the head
  std::vector<ChannelNets> nets;        // by channel

  [[nodiscard]] int channels() const { return static_cast<int>(ranks.size()); }
};

constexpr bool is_tree(Pattern pattern) {
  return pattern == Pattern::kBalancedTree || pattern == Pattern::kSplitTree ||
         pattern == Pattern::kTree;
}

}  // namespace plexus
