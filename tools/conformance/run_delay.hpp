// SPDX-License-Identifier: Apache-2.0
// Verdicts do not depend on the machine's other load: time in which a thread was runnable but had
// no core is not counted against a plugin. The kernel records it (schedstat); without that, all
// time counts, and --patience remains.
#pragma once

#include <chrono>
#include <sys/types.h>

namespace plexus::conformance {

/// Delay of the calling thread since it started.
[[nodiscard]] std::chrono::nanoseconds read_run_delay();
/// Largest delay of the threads of a process.
[[nodiscard]] std::chrono::nanoseconds read_run_delay(pid_t process);

/// `limit` from now, extended by the time in which a thread had no core; at most `times_most` times
/// `limit`, because hangs must end too. Threads: the one that made it.
class FairDeadline {
 public:
  using Clock = std::chrono::steady_clock;
  /// `process`: its threads are the ones waited for; 0: the calling thread.
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
  std::chrono::nanoseconds delay_{0};  // since construction, as last read
};

}  // namespace plexus::conformance
