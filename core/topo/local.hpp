// SPDX-License-Identifier: Apache-2.0
// Locality: the NICs of a rank for each channel, the rank that a NIC serves, the CPU of a rank.
// Ranks are spread over equally near NICs, and channels over the NICs of a rank.
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
/// The nodes of type `to` with the widest path; among those, the ones with the best path type.
Nearest nearest(const System& system, NodeType from, int ordinal, NodeType to);

/// Ordinal (NetDetail::first) of the port that channel `channel` of rank `rank` (ordinal) uses; -1:
/// there is no port.
int local_net_of_gpu(const System& system, const TopoOptions& options, int rank, int channel);
/// The first rank, over all channels, whose local port this is; -1: none.
int local_gpu_of_net(const System& system, const TopoOptions& options, int net);
int local_cpu_of_gpu(const System& system, int rank);
/// Ordinal of the device that a rank computes on.
int device_of(const System& system, int rank);

}  // namespace plexus
