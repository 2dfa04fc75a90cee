// SPDX-License-Identifier: Apache-2.0
// `plexus plugin check|bench`: the conformance kit and its benchmark, as subcommands of `plugin`.
#pragma once

#include <functional>
#include <vector>

#include "tools/cli/commands.hpp"

namespace plexus {

/// What is run when one of them was named.
std::vector<Command> add_plugin_check_commands(CLI::App& plugin);

}  // namespace plexus
