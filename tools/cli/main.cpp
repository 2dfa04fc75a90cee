// SPDX-License-Identifier: Apache-2.0
// The `plexus` command: finds the subcommand, parses its flags, runs it.
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "core/os/descriptors.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/reference.hpp"

namespace plexus {
namespace {

/// For an unknown word CLI11 only says "a subcommand is required"; this names the word.
std::string describe(const CLI::ParseError& error, const CLI::App& program) {
  const std::vector<std::string> words = program.remaining();
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !words.empty()) {
    return fmt::format("unknown subcommand '{}'", words.front());
  }
  return error.what();
}

int run(int argc, char** argv) {
  CLI::App program("Plexus: collectives for CPU ranks with NCCL's API", "plexus");
  program.set_version_flag("--version", "plexus " PLEXUS_VERSION);
  program.require_subcommand(1);
  const std::vector<Command> commands = {
      add_aggregator_command(program), add_perf_command(program),    add_verify_command(program),
      add_plugin_command(program),     add_explain_command(program), add_topo_command(program),
      add_tune_command(program),       add_cluster_command(program), add_doctor_command(program),
      add_program_command(program),    add_run_command(program),     add_sim_command(program),
      add_top_command(program)};
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words.front() == "complete") {  // what completion/ asks
    for (const std::string& word : complete_words(program, std::span(words).subspan(1))) {
      fmt::print("{}\n", word);
    }
    return kExitOk;
  }
  if (words == std::vector<std::string>{"man"}) {  // how the build makes plexus.1
    fmt::print("{}", make_man_page(program, PLEXUS_VERSION));
    return kExitOk;
  }
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // CLI11 reports errors only by exceptions
    if (error.get_exit_code() == 0) {
      return program.exit(error);  // help or version
    }
    fmt::print(stderr, "plexus: {}; see --help\n", describe(error, program));
    return kExitUsage;
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) {
      return command.run();
    }
  }
  return kExitUsage;
}

}  // namespace

int report_error(const Error& error, int exit_code) {
  fmt::print(stderr, "plexus: {}\n", error.message());
  return exit_code;
}

}  // namespace plexus

int main(int argc, char** argv) {
  plexus::raise_descriptor_limit();          // ranks, and their connections, need many
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // in a pipe, too, a line is seen when it is printed
  try {
    return plexus::run(argc, argv);
  } catch (const std::exception& error) {  // from the standard library, usually std::bad_alloc
    fmt::print(stderr, "plexus: {}\n", error.what());
    return plexus::kExitWrong;
  }
}
