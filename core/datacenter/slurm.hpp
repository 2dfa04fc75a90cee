// SPDX-License-Identifier: Apache-2.0
// Slurm's topology.conf (topology/tree) as a PLEXUS_FABRIC_FILE: a switch without a switch above it
// is a datacenter, and its nodes are all that hang below it. Links are not in topology.conf; the
// user adds them.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.hpp"

namespace plexus {

/// kInvalidUsage: line number and what is wrong there.
Result<std::string> fabric_file_of_slurm(std::string_view topology_conf);

}  // namespace plexus
