// SPDX-License-Identifier: Apache-2.0
// topology.yaml of Slurm 25.05 and later: one topology or a list of them, each a tree or blocks.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "tools/slurm/topology.hpp"

namespace plexus {

/// In the order of the file. Names in them are not checked yet, members that are not known are left
/// out, as Slurm does. kInvalidUsage: `path`, line and cause.
[[nodiscard]] Result<std::vector<SlurmTopology>> read_topology_yaml(std::string_view text,
                                                                    const std::string& path);

}  // namespace plexus
