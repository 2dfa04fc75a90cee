// SPDX-License-Identifier: Apache-2.0
// Text output for machines and channels: a machine as a tree, as Graphviz, and lists.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/topo/cluster.hpp"
#include "core/topo/system.hpp"
#include "tools/cli/topo/nccl_model.hpp"

namespace plexus {

/// "GPU 0", "NET 1 mlx5_1", "CPU 0"
std::string node_label(const Node& node);
/// 370.8, 48, 0.24
std::string gb_text(float gb_per_s);

/// CPUs with the devices below them, then the paths between ranks and to NICs. Requires computed
/// paths.
std::string format_machine(const System& system);
/// The channels of the search and of the communicator.
std::string format_cluster(const ClusterChannels& cluster);
/// A table of each collective: NCCL's algorithms and protocols by size.
std::string format_nccl_times(const NcclModel& model, const std::vector<size_t>& sizes);
/// Links with their bandwidth; each ring channel has its own colour (`found` may be null).
std::string format_dot(const System& system, const NodeChannels* found);

}  // namespace plexus
