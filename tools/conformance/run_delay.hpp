// SPDX-License-Identifier: Apache-2.0
// Verdicts do not depend on what else the machine does: time in which a thread wanted to run, and
// another had its core, is not counted against a plugin. The kernel keeps it (schedstat); where it
// does not, all time counts and --patience is left.
#pragma once

#include <chrono>
#include <sys/types.h>

namespace plexus::conformance {

/// Of the calling thread since it began.
[[nodiscard]] std::chrono::nanoseconds read_run_delay();
/// Of that thread of a process which waited longest.
[[nodiscard]] std::chrono::nanoseconds read_run_delay(pid_t process);

/// `limit` from now, and later by as much as a thread was kept from running; `times_most` times
/// `limit` at most, because a hang must end too. Threads: that which made it.
class FairDeadline {
 public:
  using Clock = std::chrono::steady_clock;
  /// `process`: whose threads are waited for; 0: the calling thread.
  static constexpr int kTimesMost = 4;
  explicit FairDeadline(std::chrono::milliseconds limit,
                        pid_t process = 0,
                        int times_most = kTimesMost);
  [[nodiscard]] bool is_over();

 private:
  [[nodiscard]] std::chrono::nanoseconds read() const;
  pid_t process_;
  Clock::time_point end_;
  Clock::duration most_;
  std::chrono::nanoseconds delay_at_begin_;
  std::chrono::nanoseconds delay_{0};  // since then, as last seen
};

}  // namespace plexus::conformance
