// SPDX-License-Identifier: Apache-2.0
// A forked rank in its parent: a move-only owner whose destructor kills the process by its id,
// never by its group, and reaps it.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

namespace plexus::perf {

/// How a process ended, from waitpid.
struct ProcessEnd {
  int exit_code;  // meaningless when `signal` is not 0
  int signal;
  [[nodiscard]] bool succeeded() const noexcept { return signal == 0 && exit_code == 0; }
};

/// "was killed by signal 9 (Killed)", "ended with exit code 3".
[[nodiscard]] std::string describe(const ProcessEnd& end);

class RankProcess {
 public:
  explicit RankProcess(pid_t pid) noexcept : pid_(pid) {}
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&& other) noexcept;
  ~RankProcess();

  [[nodiscard]] const std::optional<ProcessEnd>& end() const noexcept { return end_; }
  /// Checks whether it has ended. Never blocks.
  void poll() noexcept;
  /// Gives up ownership: another process reaps it.
  void release() noexcept { pid_ = 0; }
  /// Kills the process if it lives, and waits for its end.
  void kill() noexcept;

 private:
  pid_t pid_;  // 0: moved from
  std::optional<ProcessEnd> end_;
};

}  // namespace plexus::perf
