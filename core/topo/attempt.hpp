// SPDX-License-Identifier: Apache-2.0
// What one attempt of the search asks for, and what it has found.
#pragma once

#include <cstddef>
#include <vector>

#include "core/topo/channels.hpp"
#include "core/topo/types.hpp"

namespace plexus {

/// The requirements of an attempt and its state while it runs. Ranks and NICs are ordinals.
struct Attempt {
  Pattern pattern = Pattern::kRing;
  int cross_nic = 0;
  int channels_min = 1;
  int channels_max = 1;
  float intra_gb_per_s = 0;
  float inter_gb_per_s = 0;
  float latency_us = 0;
  PathType intra_type = PathType::kLoc;
  PathType inter_type = PathType::kPix;
  bool same_channels = true;
  int channels = 0;
  int hops = 0;
  std::vector<int> order;         // [channels][ranks]
  std::vector<ChannelNets> nets;  // [channels], each the first node of its port
};

/// Index of a channel's rank in `Attempt::order`.
constexpr size_t slot(int channel, int step, int ranks) {
  return static_cast<size_t>(channel) * static_cast<size_t>(ranks) + static_cast<size_t>(step);
}

}  // namespace plexus
