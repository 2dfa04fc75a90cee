// SPDX-License-Identifier: Apache-2.0
// In place of plugin_check.cpp in a quick build (PLEXUS_QUICK_BUILD), which has no conformance kit.
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tools/cli/plugin_check.hpp"

namespace plexus {

std::vector<Command> add_plugin_check_commands(CLI::App& plugin) {
  std::vector<Command> commands;
  for (const char* name : {"check", "bench", "checks", "certify", "verify-certificate"}) {
    CLI::App* app =
        plugin.add_subcommand(name, "Not in this build: ./dev build makes one that has it");
    app->prefix_command();
    commands.push_back({app, [name] {
                          return report_error(
                              fail(Code::kInvalidUsage,
                                   "plugin {} is not in this quick build; ./dev build makes "
                                   "build/release/bin/plexus, which has it",
                                   name),
                              kExitUsage);
                        }});
  }
  return commands;
}

std::vector<Command> add_plugin_certify_commands(CLI::App& /*plugin*/) { return {}; }

}  // namespace plexus
