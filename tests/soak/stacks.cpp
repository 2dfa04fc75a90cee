// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/stacks.hpp"

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace plexus::soak {
namespace {

using namespace std::chrono_literals;

constexpr auto kBound = 40s;
constexpr const char* kGdb = "/usr/bin/gdb";
constexpr size_t kLinesMax = 600;

bool run_gdb(pid_t pid, const std::string& output) {
  const std::string target = std::to_string(pid);
  const pid_t gdb = fork();
  if (gdb == 0) {
    const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(file, STDOUT_FILENO);
    dup2(open("/dev/null", O_RDWR | O_CLOEXEC), STDERR_FILENO);
    execl(kGdb, kGdb, "-nx", "-batch", "-p", target.c_str(), "-ex",
          "set print frame-arguments none", "-ex", "thread apply all backtrace 14", nullptr);
    _exit(127);
  }
  const auto deadline = std::chrono::steady_clock::now() + kBound;
  while (gdb > 0 && waitpid(gdb, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(gdb, SIGKILL);
      waitpid(gdb, nullptr, 0);
      return false;
    }
    std::this_thread::sleep_for(50ms);
  }
  return gdb > 0;
}

std::string first_line_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Lists each thread's state as /proc has it and where it sleeps in the kernel. A debugger does not
/// show one that waits for a disk, as it cannot stop it.
std::string states_of(pid_t pid) {
  std::string text;
  std::error_code gone;
  const std::filesystem::path tasks = "/proc/" + std::to_string(pid) + "/task";
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator at(tasks, gone); at != end; at.increment(gone)) {
    const std::filesystem::path task = at->path();
    const std::string stat = first_line_of(task / "stat");
    const size_t name_end = stat.rfind(')');
    text += "    thread " + task.filename().string() + " (" + first_line_of(task / "comm") + ") " +
            (name_end + 2 < stat.size() ? stat.substr(name_end + 2, 1) : "?") + " " +
            first_line_of(task / "wchan") + "\n";
  }
  return text;
}

}  // namespace

std::string stacks_of(pid_t pid, const std::string& folder) {
  const std::string output = folder + "/stacks";
  std::string text = "  threads of process " + std::to_string(pid) + "\n" + states_of(pid);
  if (access(kGdb, X_OK) != 0 || !run_gdb(pid, output)) {
    return text;
  }
  text += "  stacks of process " + std::to_string(pid) + "\n";
  std::ifstream file(output);
  std::string line;
  for (size_t nlines = 0; nlines < kLinesMax && std::getline(file, line);) {
    if (line.starts_with("#") || line.starts_with("Thread ")) {
      text += "    " + line.substr(0, 200) + "\n";
      ++nlines;
    }
  }
  return text;
}

}  // namespace plexus::soak
