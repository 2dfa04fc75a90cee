// SPDX-License-Identifier: Apache-2.0
// `plexus plugin check|bench|certify|verify-certificate`: the conformance kit, its benchmark and
// its certificates, as subcommands of `plugin`.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "tools/cli/commands.hpp"

namespace plexus {

namespace conformance {
struct Check;
struct Subject;
}  // namespace conformance

/// The file of LIB: a path, or a name in the folders of plugins.
Result<std::filesystem::path> find_plugin_file(const std::string& name);

/// What the subcommands that run the kit have in common.
struct SubjectFlags {
  std::string library;
  std::string abi;
  std::string kind;
  bool has_cudart_stub = false;
  bool has_cuda_stub = false;
  int jobs = 2;
  int patience = 1;
  int bench_mebibytes = 256;
};
/// The flags for stubs, --jobs and --patience.
void add_subject_flags(CLI::App& app, const std::shared_ptr<SubjectFlags>& flags);
Result<conformance::Subject> make_subject(const SubjectFlags& flags);
/// conformance::KnownLimits of the file --known; empty without one.
Result<std::map<std::string, std::string>> read_known_limits(
    const std::string& path, const std::vector<const conformance::Check*>& all);

/// The subcommands, with the functions that run them.
std::vector<Command> add_plugin_check_commands(CLI::App& plugin);
std::vector<Command> add_plugin_certify_commands(CLI::App& plugin);

}  // namespace plexus
