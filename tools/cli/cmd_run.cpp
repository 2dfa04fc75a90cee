// SPDX-License-Identifier: Apache-2.0
// `plexus run`: executes a program with virtual devices (integrations/cudart) in place of GPUs.
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>

#include "tools/cli/commands.hpp"

namespace plexus {
namespace {

constexpr int kDevicesMax = 64;

struct RunOptions {
  int devices = -1;    // -1: as PLEXUS_CUDART_DEVICES says, or the default
  std::string memory;  // empty: likewise
  bool summary = false;
};

/// `folder` comes before what is in the list of folders `name` already.
void prepend(const char* name, const std::string& folder) {
  const char* const old = std::getenv(name);
  const std::string value = old == nullptr || *old == '\0' ? folder : folder + ":" + old;
  setenv(name, value.c_str(), 1);
}

int run_program(const RunOptions& options, std::vector<std::string> words) {
  if (words.empty()) {
    return report_error(
        fail(Code::kInvalidUsage, "run: which program? plexus run PROGRAM [ARGUMENTS]"),
        kExitUsage);
  }
  const std::filesystem::path library = find_library_folder();
  const std::filesystem::path cudart = library / "plexus" / "cudart";
  std::error_code error;
  if (!std::filesystem::exists(cudart / "libcudart.so.13", error)) {
    return report_error(
        fail(Code::kInvalidUsage,
             "run: {} has no libcudart.so.13: build the target cudart_13, or install "
             "the package plexus-tools",
             cudart.string()),
        kExitUnchecked);
  }
  prepend("LD_LIBRARY_PATH", library.string());
  prepend("LD_LIBRARY_PATH", cudart.string());
  if (options.devices >= 0) {
    setenv("PLEXUS_CUDART_DEVICES", std::to_string(options.devices).c_str(), 1);
  }
  if (!options.memory.empty()) {
    setenv("PLEXUS_CUDART_MEMORY", options.memory.c_str(), 1);
  }
  if (options.summary) {
    setenv("PLEXUS_CUDART_SUMMARY", "1", 1);
  }
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  execvp(arguments.front(), arguments.data());
  return report_error(fail(Code::kSystemError, "run: {} cannot be run: {}", words.front(),
                           std::system_category().message(errno)),
                      kExitUsage);
}

}  // namespace

Command add_run_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "run", "A program written for CUDA and NCCL, on virtual devices over host memory");
  const auto options = std::make_shared<RunOptions>();
  app->add_option("--devices", options->devices, "virtual devices of each process (default 8)")
      ->check(CLI::Range(0, kDevicesMax));
  app->add_option("--memory", options->memory, "memory of each device, such as 4G");
  app->add_flag("--summary", options->summary, "at the end each process says what it used");
  app->prefix_command();
  app->footer(
      "plexus run PROGRAM [ARGUMENTS], also behind a launcher: mpirun -np 4 plexus run PROGRAM");
  return {app, [app, options] { return run_program(*options, app->remaining()); }};
}

}  // namespace plexus
