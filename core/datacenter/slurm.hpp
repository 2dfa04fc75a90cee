// SPDX-License-Identifier: Apache-2.0
// Converts Slurm's topology.conf (topology/tree) to a PLEXUS_FABRIC_FILE: switches become
// datacenters, and all hosts below them their nodes. topology.conf has no links; the user adds
// them.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.hpp"

namespace plexus {

/// `depth`: how many switches are above those that become datacenters. 0: the switches at the top.
/// Slurm gives jobs nodes of several switches only where all are below one: 1 then. A switch that
/// has nothing but nodes below it is a datacenter also if it is higher. kInvalidUsage: line number
/// and cause.
Result<std::string> fabric_file_of_slurm(std::string_view topology_conf, int depth = 0);

}  // namespace plexus
