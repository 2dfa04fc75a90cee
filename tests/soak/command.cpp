// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/command.hpp"

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace plexus::soak {
namespace {

using namespace std::chrono_literals;

constexpr auto kBound = 20s;
constexpr auto kPause = 1ms;

}  // namespace

int run_command(const std::vector<std::string>& arguments, const std::string& input) {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) {
    pointers.push_back(const_cast<char*>(argument.c_str()));
  }
  pointers.push_back(nullptr);
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return -1;
  }
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[0], STDIN_FILENO);
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execvp(pointers.front(), pointers.data());
    _exit(127);
  }
  close(ends[0]);
  // Less than a pipe holds, so that it never blocks.
  const bool is_written =
      write(ends[1], input.data(), input.size()) == static_cast<ssize_t>(input.size());
  close(ends[1]);
  const auto deadline = std::chrono::steady_clock::now() + kBound;
  int status = -1;
  while (child > 0 && waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return -1;
    }
    std::this_thread::sleep_for(kPause);
  }
  return child > 0 && is_written && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace plexus::soak
