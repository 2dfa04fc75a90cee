// SPDX-License-Identifier: Apache-2.0
// The widest path of the best type between the nodes of a system, adjusted by the decisions: pairs
// without peer access go through the CPU, and so do NICs that cannot access a GPU's memory; a GPU
// sends to a far NIC through the GPU beside that NIC (PXN) when that is better.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/topo/options.hpp"
#include "core/topo/system.hpp"

namespace plexus {

/// Fills Node::paths, NetDetail::local_gpu and the system's bandwidths.
void compute_paths(System& system, const TopoOptions& options);

/// Splits a host into parts that the network joins, each with computed paths. As in NCCL a rank is
/// in the lowest part of the ranks before it that it reaches without the network, and parts are not
/// joined later: a GPU that lost its NVLinks is left out, even if one of the others reaches it.
/// `inter`: the communicator has ranks on other hosts (also implied by several parts).
std::vector<System> split_by_reach(const System& system, const TopoOptions& options, bool inter);

/// A sentence for each GPU without NVLink where most GPUs of the host have some.
std::vector<std::string> nvlink_warnings(std::span<const System> parts);

}  // namespace plexus
