// SPDX-License-Identifier: Apache-2.0
// Converts Slurm's topology.conf (topology/tree, topology/block) and topology.yaml to a
// PLEXUS_FABRIC_FILE: switches or blocks become datacenters, and all hosts below them their nodes.
// Slurm's files have no links; the user adds them.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.hpp"
#include "tools/slurm/conf.hpp"

namespace plexus {

struct SlurmRequest {
  std::string path;  // of the file: for messages and to find what it includes
  /// How many switches are above those that become datacenters. 0: the switches at the top. Slurm
  /// gives jobs nodes of several switches only where all are below one: 1 then. A switch that has
  /// nothing but nodes below it is a datacenter also if it is higher. Blocks: without meaning.
  int depth = 0;
  std::string topology;  // of topology.yaml, by name; empty: that of the cluster
};

/// kInvalidUsage: file, line and cause, wherever slurmctld would not start with the file.
Result<SlurmFabric> fabric_file_of_slurm(std::string_view text,
                                         const SlurmRequest& request,
                                         const ReadFile& read);

}  // namespace plexus
