// SPDX-License-Identifier: Apache-2.0
// Whether other threads of this process compute on the core on which this thread waits, as in
// training beside a collective. A thread that yields to them gets the core back only after their
// time slice (some ms), but one that sleeps when its peer wakes it: beside them a wait should sleep
// at once; alone on its core, it should spin and yield.
//
// Threads of other processes are no reason to sleep: the scheduler may then move this thread to the
// core of the one that wakes it, its peer, and the two take turns on one core.
#pragma once

#include <chrono>

#include "core/base/clock.hpp"

namespace plexus {

/// Threads: one, always the same.
class CoreNeighbours {
 public:
  using ReadTime = std::chrono::nanoseconds (*)() noexcept;
  /// `others_ran`: processor time of the process's other threads so far.
  explicit CoreNeighbours(ReadTime others_ran = read_others) : read_others_(others_ran) {}
  /// There were some lately, and are_there() has not found since that they are gone.
  [[nodiscard]] bool are_known() const noexcept { return are_known_; }
  bool are_there(Clock::time_point now) noexcept;
  /// A yield took from `before` to `after`: long if another thread ran.
  void learn(Clock::time_point before, Clock::time_point after) noexcept;

 private:
  static std::chrono::nanoseconds read_others() noexcept;
  /// Whether they used the processor since the last call, if that was a short time ago.
  bool did_others_run(Clock::time_point now) noexcept;

  ReadTime read_others_;
  bool are_known_ = false;
  Clock::time_point looked_at_{};
  std::chrono::nanoseconds others_ran_{};  // until then
};

}  // namespace plexus
