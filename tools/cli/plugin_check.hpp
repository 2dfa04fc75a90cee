// SPDX-License-Identifier: Apache-2.0
// `plexus plugin check|bench`: the conformance kit and its benchmark, as subcommands of `plugin`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "tools/cli/commands.hpp"

namespace plexus {

/// The file of LIB: a path, or a name in the folders of plugins.
Result<std::filesystem::path> find_plugin_file(const std::string& name);

/// The subcommands, with the functions that run them.
std::vector<Command> add_plugin_check_commands(CLI::App& plugin);

}  // namespace plexus
