// SPDX-License-Identifier: Apache-2.0
// The engine: one thread's cooperative loop over everything that it drives. An item of work begins
// when its connections are connected; then its lanes advance until they wait. Lanes of this engine
// wake each other, all other lanes are polled, and net pumps move between polls. When nothing
// moves, the engine spins briefly, then yields, then sleeps until the other side moves (bounded, so
// that it notices aborts and pumps).
//
// Threads: one thread at a time; different engines run in parallel. run() allocates only when it
// drives more lanes than ever before.
//
//   Engine engine;
//   Execution* const all[] = {&execution};
//   engine.run(all);  // returns when it has ended; execution.error says how
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/execution.hpp"
#include "core/engine/idle_wait.hpp"
#include "core/engine/stall_look.hpp"

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
  void wait() noexcept {
    if (idle_.spin_or_yield(active_)) {
      sleep();
    }
  }

 private:
  void sleep() noexcept;
  // These may throw std::bad_alloc, which run(), add() and progress() make an error.
  bool progress_lanes();
  Progress advance(LaneRun& lane);
  bool progress_execution(Execution& execution);
  bool progress_remote(Execution& execution);
  Result<bool> progress_connect(Execution& execution);
  Result<bool> progress_pumps(Execution& execution);
  void run_simple(Execution& execution) noexcept;
  [[gnu::noinline]] void run_together(std::span<Execution* const> executions);
  bool poll_queues(Execution& execution, RunQueue& alone) noexcept;
  [[gnu::noinline]] bool wait_for(Execution& execution) noexcept;
  void begin(Execution& execution);
  void begin_item(Execution& execution, WorkQueue& queue);
  void lane_done(LaneRun& lane);
  void park(LaneRun& lane);
  void finish(Execution& execution);
  void fail(Execution& execution, Error error);
  void fail_for_memory(Execution& execution) noexcept;

  RunQueue queue_;
  std::vector<Execution*> active_;
  std::vector<LaneRun*> polled_;
  IdleWait idle_;
  StallLook stalls_;
};

/// The reason why `lane` failed, as one sentence that names both ranks and both calls.
Error describe_failure(LaneRun& lane);
/// For a call that has waited for `time`, which is more than it may. `culprit`: as
/// RankState::find_culprit(). `is_taken_back`: it counts as not made.
Error describe_deadline(std::span<const Wait> waits,
                        std::chrono::milliseconds time,
                        const std::string& culprit,
                        bool is_taken_back);
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
