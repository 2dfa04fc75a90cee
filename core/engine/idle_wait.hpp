// SPDX-License-Identifier: Apache-2.0
// How an engine waits when nothing moves: it spins, then yields, then sleeps until the other side
// of a lane moves, bounded, so that aborts and pumps are noticed.
//
//   while (!executions.empty()) {
//     if (progress()) {
//       idle.moved();
//     } else if (idle.spin_or_yield(executions)) {
//       IdleWait::sleep(executions, lanes);
//     }
//   }
//
// Threads: one, always the same.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/clock.hpp"
#include "core/engine/core_neighbours.hpp"
#include "core/engine/execution.hpp"

namespace plexus {

class IdleWait {
 public:
  /// One step of waiting. True: the next one is to sleep.
  [[nodiscard]] bool spin_or_yield(std::span<Execution* const> active) noexcept;
  /// Until the peer of one of the `lanes` moves, or a short time has passed.
  static void sleep(std::span<Execution* const> active, std::span<LaneRun* const> lanes) noexcept;
  /// Something has moved.
  void moved() noexcept {
    if (rounds_ > 0) {
      end();
    }
  }
  /// Steps since something moved.
  [[nodiscard]] uint32_t rounds() const noexcept { return rounds_; }

 private:
  void end() noexcept;
  bool has_spun_long() noexcept;
  void note_idle(Clock::time_point now) noexcept;
  void yield() noexcept;
  void give_turn() noexcept;

  uint32_t rounds_ = 0;
  bool is_long_ = false;
  Clock::time_point since_{};
  Clock::time_point spins_since_{};
  CoreNeighbours neighbours_;
  uint32_t shared_spin_rounds_ = 0;  // where there are some
};

}  // namespace plexus
