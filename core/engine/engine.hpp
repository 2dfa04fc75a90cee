// SPDX-License-Identifier: Apache-2.0
// The engine: one thread's cooperative loop over everything that it drives. An item of work begins
// when its connections are connected; then its lanes advance until they wait. Lanes of this engine
// wake each other, all other lanes are polled, and net pumps move between polls. When nothing
// moves, the engine spins briefly, then yields, then sleeps until the other side moves (bounded, so
// that it notices aborts and pumps).
//
// Threads: one thread at a time; different engines run in parallel. run() allocates only when it
// drives more lanes than ever before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/clock.hpp"
#include "core/engine/core_neighbours.hpp"
#include "core/engine/execution.hpp"

namespace plexus {

class Engine {
 public:
  Engine();

  /// Drives all of `executions` until each is finished (see Execution::error). Throws
  /// std::bad_alloc before any of them has begun; afterwards, that is an error of the execution.
  void run(std::span<Execution* const> executions);

  // The steps of run(), for the thread that serves host streams.
  /// Makes room for `executions` more; what add() needs before. Throws std::bad_alloc.
  void reserve(size_t executions) { active_.reserve(active_.size() + executions); }
  void add(Execution& execution) noexcept;
  /// Runs one round. True when something moved.
  bool progress() noexcept;
  [[nodiscard]] bool empty() const noexcept { return active_.empty(); }
  /// To be called when nothing moved: spins, yields or sleeps, longer each time.
  void wait() noexcept;

 private:
  // These may throw std::bad_alloc, which run(), add() and progress() make an error.
  bool progress_lanes();
  [[nodiscard]] bool is_waited_for(const Execution& execution,
                                   const ConnectionKey& key) const noexcept;
  Progress advance(LaneRun& lane);
  bool progress_execution(Execution& execution);
  bool progress_remote(Execution& execution);
  Result<bool> progress_connect(Execution& execution);
  Result<bool> progress_pumps(Execution& execution);
  [[nodiscard]] bool spins() const noexcept;
  void run_simple(Execution& execution) noexcept;
  [[gnu::noinline]] void run_together(std::span<Execution* const> executions);
  size_t restart_item(const Execution& execution, WorkQueue& queue) noexcept;
  bool poll_queues(Execution& execution, RunQueue& alone) noexcept;
  [[gnu::noinline]] bool wait_for(Execution& execution) noexcept;
  [[nodiscard]] bool can_one_go_on() const noexcept;
  [[nodiscard]] bool poll_for_answer() const noexcept;
  [[gnu::cold]] static void fail_simple(Execution& execution, LaneRun& lane) noexcept;
  [[gnu::cold]] static void take_stop_reason(Execution& execution) noexcept;
  void moved() noexcept {
    if (idle_rounds_ > 0) {
      end_idling();
    }
  }
  void end_idling() noexcept;
  void begin(Execution& execution);
  void begin_item(Execution& execution, WorkQueue& queue);
  void lane_done(LaneRun& lane);
  void park(LaneRun& lane);
  void finish(Execution& execution);
  void fail(Execution& execution, Error error);
  void fail_for_memory(Execution& execution) noexcept;
  static void own_end_of(ConnectionEnd& end, uint32_t engine) noexcept;
  void find_stalled() noexcept;
  void look_for_missing(Execution& execution) const;
  [[nodiscard]] bool has_stood_for(const Execution& execution, Clock::duration time) const noexcept;
  void find_stalled_sometimes() noexcept;
  [[nodiscard]] Clock::duration look_pause() const noexcept;
  bool has_spun_long() noexcept;
  void note_idle(Clock::time_point now) noexcept;
  void yield() noexcept;
  void give_turn() noexcept;
  void sleep() noexcept;
  static void sleep_at(std::span<LaneRun* const> lanes) noexcept;

  RunQueue queue_;
  std::vector<Execution*> active_;
  std::vector<LaneRun*> polled_;
  uint32_t idle_rounds_ = 0;
  bool idle_long_ = false;
  Clock::time_point idle_since_{};
  Clock::time_point spins_since_{};
  CoreNeighbours neighbours_;
  uint32_t shared_spin_rounds_ = 0;  // where there are some
  uint32_t busy_rounds_ = 0;
  Clock::time_point looked_at_{};  // last check for stalls
};

/// The reason why `lane` failed, as one sentence that names both ranks and both calls.
Error describe_failure(LaneRun& lane);
/// `wait` is for a rank that is not there any more.
Error describe_gone(const Wait& wait);
/// The call that a rank expected in a message, and the call that the message belongs to.
struct Mismatch {
  int rank;
  int peer;
  CallRecord call;
  std::span<const CallRecord> peers_calls;  // the most recent ones; may be empty
  uint32_t hash_arrived;
  uint32_t size_expected;
  uint32_t size_arrived;
};
Error describe_mismatch(const Mismatch& mismatch);
/// "all_reduce(count 1024, float, sum), call number 7", for error messages.
std::string describe_call(const CallRecord& call);

}  // namespace plexus
