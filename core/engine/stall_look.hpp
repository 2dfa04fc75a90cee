// SPDX-License-Identifier: Apache-2.0
// Looks at the executions of an engine from time to time: which have not moved for long, and which
// wait for a rank that is gone. What it finds it tells their ranks (RankState).
//
//   look.while_busy(executions);        // after every round in which something moved
//   look.while_idle(executions, now);   // before the engine sleeps
//
// Threads: one, always the same.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/clock.hpp"
#include "core/engine/execution.hpp"

namespace plexus {

class StallLook {
 public:
  /// One execution may stall while others proceed.
  void while_busy(std::span<Execution* const> active) noexcept;
  void while_idle(std::span<Execution* const> active, Clock::time_point now) noexcept;
  /// Whether the execution had not moved for so long at the last look.
  [[nodiscard]] bool has_stood_for(const Execution& execution, Clock::duration time) const noexcept;

 private:
  void find_stalled(std::span<Execution* const> active) noexcept;
  void look_for_missing(Execution& execution) const;
  void end_at_deadline(Execution& execution) const;

  uint32_t busy_rounds_ = 0;
  Clock::time_point looked_at_{};
};

}  // namespace plexus
