// SPDX-License-Identifier: Apache-2.0
// Who is near whom: the NICs of a rank, channel by channel, the rank that a NIC serves, the CPU of
// a rank. Ranks spread over the NICs that are equally near, and channels over the NICs of a rank.
#pragma once

#include <vector>

#include "core/topo/options.hpp"
#include "core/topo/system.hpp"

namespace plexus {

inline constexpr int kSearchChannelsMax = 64;

struct Nearest {
  std::vector<int> ordinals;
  PathType type = PathType::kDis;
};
/// The nodes of type `to` with the widest path, and of those the ones with the best type.
Nearest nearest(const System& system, NodeType from, int ordinal, NodeType to);

/// Ordinal of the port that channel `channel` of rank `rank` (ordinal) uses; -1 without any.
int local_net_of_gpu(const System& system, const TopoOptions& options, int rank, int channel);
/// The first rank whose local port this is, over the channels; -1: none.
int local_gpu_of_net(const System& system, const TopoOptions& options, int net);
int local_cpu_of_gpu(const System& system, int rank);
/// Ordinal of the device that a rank computes on.
int device_of(const System& system, int rank);

}  // namespace plexus
