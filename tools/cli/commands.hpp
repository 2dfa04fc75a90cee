// SPDX-License-Identifier: Apache-2.0
// The subcommands of `plexus`. Each declares its flags on the program's parser and returns the
// function that runs it. Exit codes: 0 success, 1 it ran and found something wrong, 2 bad usage, 3
// nothing that could be done here.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "core/base/result.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's name
class App;
}

namespace plexus {

namespace perf {
struct PerfOptions;
}

inline constexpr int kExitOk = 0;
inline constexpr int kExitWrong = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitUnchecked = 3;

struct Command {
  CLI::App* app;
  std::function<int()> run;  // after a successful parse in which `app` was named
};

Command add_aggregator_command(CLI::App& program);
Command add_doctor_command(CLI::App& program);
Command add_perf_command(CLI::App& program);
Command add_program_command(CLI::App& program);
Command add_run_command(CLI::App& program);
Command add_sim_command(CLI::App& program);
Command add_plugin_command(CLI::App& program);
Command add_cluster_command(CLI::App& program);
Command add_top_command(CLI::App& program);
Command add_topo_command(CLI::App& program);
Command add_verify_command(CLI::App& program);
Command add_explain_command(CLI::App& program);
Command add_tune_command(CLI::App& program);

/// What `plexus perf` does after the parse; returns the exit code.
int run_perf(perf::PerfOptions options);

/// The folder of the library in use, in which its plugins are.
std::filesystem::path find_library_folder();
/// Writes `text` to a file, or to stdout for "-".
Result<void> write_output(const std::string& file_name, const std::string& text);
/// NAME.0.et, NAME.1.et, ... for NAME.et.
Result<void> write_rank_files(const std::string& file_name,
                              int nranks,
                              const std::function<std::string(int rank)>& text_of);
/// Prints the error as one sentence on stderr and returns `exit_code`.
int report_error(const Error& error, int exit_code);

}  // namespace plexus
