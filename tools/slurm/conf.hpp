// SPDX-License-Identifier: Apache-2.0
// topology.conf in the syntax that slurmctld takes: KEY=VALUE with spaces around `=`, quoted
// values, `\` at the end of a line, `#` and `\#`, Include.
#pragma once

#include <functional>
#include <string>

#include "core/base/result.hpp"
#include "tools/slurm/topology.hpp"

namespace plexus {

/// The bytes of a file, or why it cannot be read.
using ReadFile = std::function<Result<std::string>(const std::string& path)>;

/// Names in it are not checked yet. `path` is the file's own: what it includes is looked for beside
/// it and read by `read`. kInvalidUsage: file, line (the first of a continued one) and cause.
[[nodiscard]] Result<SlurmTopology> read_topology_conf(std::string_view text,
                                                       const std::string& path,
                                                       const ReadFile& read);

}  // namespace plexus
