// SPDX-License-Identifier: Apache-2.0
// Converts Slurm's topology.conf (topology/tree) to a PLEXUS_FABRIC_FILE: a switch without a switch
// above it is a datacenter, and all hosts below it are its nodes. topology.conf has no links; the
// user adds them.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.hpp"

namespace plexus {

/// kInvalidUsage: line number and cause.
Result<std::string> fabric_file_of_slurm(std::string_view topology_conf);

}  // namespace plexus
