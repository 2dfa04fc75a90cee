// SPDX-License-Identifier: Apache-2.0
// The processes of a running check, from fork to verdict.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "tools/conformance/check.hpp"
#include "tools/conformance/run_delay.hpp"
#include "tools/conformance/runner.hpp"
#include "tools/conformance/status_page.hpp"

namespace plexus::conformance {

/// Its destructor ends the remaining processes.
class Cell {
 public:
  [[nodiscard]] static Result<Cell> start(const Subject& subject, const Check& check);
  Cell(Cell&&) noexcept = default;
  Cell& operator=(Cell&& other) noexcept;
  ~Cell();

  /// The verdict, once all processes have ended or the deadline has passed. Never blocks for long.
  [[nodiscard]] std::optional<Verdict> poll();

 private:
  using Clock = std::chrono::steady_clock;
  struct Process {
    pid_t pid = -1;
    bool has_ended = false;
    int status = 0;   // from waitpid
    int output = -1;  // what it wrote to stdout and stderr
  };
  Cell(const Check& check, SharedStatusPage page, std::chrono::milliseconds limit)
      : check_(&check), page_(std::move(page)), begin_(Clock::now()), limit_(limit) {}
  [[nodiscard]] bool is_late();
  [[nodiscard]] Verdict judge(bool is_late);
  /// nullopt: this process reported success.
  [[nodiscard]] std::optional<std::string> find_crash(size_t role) const;
  void kill_all() noexcept;

  const Check* check_;
  SharedStatusPage page_;
  Clock::time_point begin_;
  std::chrono::milliseconds limit_;
  std::vector<FairDeadline> deadlines_;  // [processes]; the check is late when all have passed
  std::vector<Process> processes_;
};

}  // namespace plexus::conformance
