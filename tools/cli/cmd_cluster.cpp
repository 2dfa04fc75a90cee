// SPDX-License-Identifier: Apache-2.0
// `plexus cluster`: executes the script plexus-cluster (tools/cluster) that is beside this program.
#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>

#include "tools/cli/commands.hpp"

namespace plexus {
namespace {

int run_cluster(std::vector<std::string> arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  std::string script = (self.parent_path() / "plexus-cluster").string();
  std::vector<char*> words = {script.data()};
  for (std::string& argument : arguments) {
    words.push_back(argument.data());
  }
  words.push_back(nullptr);
  execv(script.c_str(), words.data());
  return report_error(fail(Code::kSystemError, "{} cannot be run: {}", script,
                           std::system_category().message(errno)),
                      kExitUsage);
}

}  // namespace

Command add_cluster_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "cluster", "Several datacenters on this machine, and a command on all their ranks");
  app->prefix_command();
  app->set_help_flag();  // the script prints the help
  return {app, [app] { return run_cluster(app->remaining()); }};
}

}  // namespace plexus
