// SPDX-License-Identifier: Apache-2.0
// The widest path of the best type between the nodes of a system, then what the decisions make of
// them: pairs without peer access go through the CPU, NICs that cannot reach a GPU's memory too,
// and a GPU sends to a far NIC through the GPU beside it (PXN) when that is better.
#pragma once

#include <vector>

#include "core/topo/options.hpp"
#include "core/topo/system.hpp"

namespace plexus {

/// Fills Node::paths, NetDetail::local_gpu and the system's bandwidths.
void compute_paths(System& system, const TopoOptions& options);

/// Parts of one host whose ranks reach each other without the network, each with its paths
/// computed. `inter`: the communicator has ranks on other hosts (several parts also mean that).
std::vector<System> split_by_reach(const System& system, const TopoOptions& options, bool inter);

}  // namespace plexus
