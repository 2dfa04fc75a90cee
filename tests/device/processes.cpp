// SPDX-License-Identifier: Apache-2.0
#include "tests/device/processes.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/device/job.hpp"

namespace plexus::testing_device {
namespace {

std::string hex_of(const ncclUniqueId& id) {
  std::string text;
  for (const char byte : id.internal) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::vector<std::string> run_processes(const std::string& role,
                                       const std::vector<int>& on,
                                       const Environment& environment,
                                       int exit_code) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("plexus_device_{}_{}", getpid(), role);
  std::filesystem::create_directories(folder);
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<pid_t> children;
  for (size_t rank = 0; rank < on.size(); ++rank) {
    std::vector<std::string> words = {"env",
                                      "PLEXUS_TEST_ROLE=" + role,
                                      fmt::format("PLEXUS_TEST_RANK={}", rank),
                                      fmt::format("PLEXUS_TEST_RANKS={}", on.size()),
                                      "PLEXUS_TEST_ID=" + hex_of(id),
                                      fmt::format("PLEXUS_TEST_DEVICE={}", std::max(on[rank], 0)),
                                      on[rank] < 0 ? "PLEXUS_DEVICE=host" : "PLEXUS_DEVICE=cuda",
                                      "NCCL_DEBUG=INFO",
                                      "NCCL_DEBUG_SUBSYS=ALL",
                                      fmt::format("NCCL_DEBUG_FILE={}/{}", folder.string(), rank)};
    for (const auto& [name, value] : environment) {
      words.push_back(name + "=" + fmt::format(fmt::runtime(value), rank));
    }
    words.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
    std::vector<char*> arguments;
    for (std::string& word : words) {
      arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    const pid_t child = vfork();
    if (child == 0) {
      execvp("env", arguments.data());
      _exit(127);
    }
    children.push_back(child);
  }
  std::vector<std::string> logs;
  for (size_t rank = 0; rank < on.size(); ++rank) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    logs.push_back(read_file(folder / std::to_string(rank)));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == exit_code) << "rank " << rank << ":\n"
                                                                       << logs.back();
  }
  std::filesystem::remove_all(folder);
  return logs;
}

}  // namespace plexus::testing_device
