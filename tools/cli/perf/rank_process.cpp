// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/rank_process.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <sys/wait.h>
#include <utility>

#include <fmt/core.h>

namespace plexus::perf {
namespace {

ProcessEnd end_of(int status) noexcept {
  if (WIFSIGNALED(status)) {
    return {.exit_code = 0, .signal = WTERMSIG(status)};
  }
  return {.exit_code = WEXITSTATUS(status), .signal = 0};
}

}  // namespace

std::string describe(const ProcessEnd& end) {
  if (end.signal != 0) {
    const char* name = sigdescr_np(end.signal);
    return fmt::format("was killed by signal {} ({})", end.signal,
                       name == nullptr ? "unknown" : name);
  }
  return fmt::format("ended with exit code {}", end.exit_code);
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), end_(other.end_) {}

RankProcess& RankProcess::operator=(RankProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(end_, other.end_);
  return *this;
}

RankProcess::~RankProcess() {
  if (pid_ > 0) {
    kill();
  }
}

void RankProcess::poll() noexcept {
  int status = 0;
  if (!end_ && waitpid(pid_, &status, WNOHANG) == pid_) {
    end_ = end_of(status);
  }
}

void RankProcess::kill() noexcept {
  poll();
  if (end_) {
    return;
  }
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  end_ = end_of(status);
}

}  // namespace plexus::perf
