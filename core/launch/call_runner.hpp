// SPDX-License-Identifier: Apache-2.0
// How the calls of one communicator run: their plans, made once per shape; the engine that drives
// inline calls; what is on streams and devices. Knows no communicator.
//
// Threads: one thread at a time makes calls; what is submitted is finished by the async engine's.
//
//   CallRunner runner(context);
//   PLEXUS_TRY(runner.run_inline(tasks));  // returns when the group's calls have ended
//   return ok();
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <span>

#include "core/engine/async_engine.hpp"
#include "core/engine/engine.hpp"
#include "core/launch/device_run.hpp"
#include "core/launch/launch_pool.hpp"
#include "core/launch/profile.hpp"
#include "core/launch/trial_runner.hpp"
#include "core/schedule/call_log.hpp"
#include "core/schedule/plan.hpp"
#include "core/transport/memory/peer_mapped_memory.hpp"

namespace plexus {

/// What running calls needs from the communicator and from the process. Pointers are borrowed.
struct LaunchContext {
  PlanContext plans;
  const UserMemory* memory;
  std::span<const PeerInfo> infos;  // [nranks]
  CallLog* log;
  Profile* profile;  // nullptr: no profiler is loaded
  AsyncEngine* async;
  LaunchPool* launches;
  PeerMappedMemory*
      peer_mapped;        // nullptr: no kernel in another process may read this rank's device
  bool registers_graphs;  // buffers of captured calls may be read in place
  bool orders_graphs;     // with calls outside them
  /// Before the collective with this number `change` is called, in the thread that makes the call;
  /// true: what plans are chosen by has changed. nullptr: never.
  const std::atomic<uint64_t>* changes_at = nullptr;
  std::function<Result<bool>()> change = {};
};

inline constexpr const char* kSuspended =
    "the communicator is suspended: only ncclCommResume, ncclCommFinalize and its end are possible";

/// To be called when a call of the rank has failed: those that ended at a deadline and had not
/// begun were not made.
inline void take_back_calls(const LaunchContext& context) {
  for (const CallRecord& call : context.plans.state->taken_back) {
    context.log->take_back(call);
  }
  context.plans.state->taken_back.clear();
}

class CallRunner {
 public:
  explicit CallRunner(const LaunchContext& context)
      : context_(context),
        places_(context.memory),
        repeats_(context.profile == nullptr && context.plans.device == nullptr),
        spans_devices_(context.plans.device != nullptr && spans_devices(context)),
        trial_runner_(context_.plans, can_measure(context.infos)) {}
  CallRunner(const CallRunner&) = delete;
  CallRunner& operator=(const CallRunner&) = delete;

  [[nodiscard]] const LaunchContext& context() const noexcept { return context_; }
  /// nullptr: the rank computes on the host.
  [[nodiscard]] DeviceRank* device() const noexcept { return context_.plans.device; }
  [[nodiscard]] DeviceOrder& order() noexcept { return order_; }
  /// Kernels on other devices of this process use the rank's buffers by address.
  [[nodiscard]] bool spans_devices() const noexcept { return spans_devices_; }
  [[nodiscard]] Engine& engine() noexcept { return engine_; }
  [[nodiscard]] LastChoice last_choice() const noexcept;

  // -- plans --
  /// A plan for `tasks` (all of this communicator), there until the next call. A failure leaves
  /// nothing behind.
  Result<Plan*> find_plan(std::span<const Task> tasks);
  /// Gives up all plans; find_plan() fails until restore(). False: a graph holds one.
  [[nodiscard]] bool release() noexcept {
    is_released_ = plans_.release();
    trial_ = nullptr;
    return is_released_;
  }
  void restore() noexcept { is_released_ = false; }
  [[nodiscard]] bool is_released() const noexcept { return is_released_; }
  /// Memory that plans compute in.
  [[nodiscard]] size_t held_bytes() const noexcept { return plans_.held_bytes(); }
  /// The one that find_plan() gave last.
  [[nodiscard]] Plan* newest_plan() const noexcept { return plans_.newest(); }
  /// The tuner's time for `tasks` without running them; nullopt: it has none for one of them.
  Result<std::optional<double>> estimate_us(std::span<const Task> tasks);
  /// Fills it in, ready to execute: from here on the calls are made.
  void prepare(Plan& plan, std::span<const Task> tasks);

  // -- inline --
  /// Runs one group's tasks of this communicator. Waits for what is submitted first.
  Result<void> run_inline(std::span<const Task> tasks);
  /// Runs a call of this shape without checks if it can: the communicator has a plan for it, since
  /// an equal call has passed them. False: not run, to be checked and run as a task.
  Result<bool> repeat(const CallShape& shape, const void* send, void* recv);
  /// The same for a group like the last one, whose plan had this Plan::number().
  Result<bool> repeat_group(uint64_t plan_number, std::span<const Task> tasks);

  // -- on streams and devices --
  /// Makes `plan` a part of a submission, which the caller hands to the async engine.
  Submission::Part start_submission(Plan& plan);
  /// The same for other work of the rank, whose owner `finished` keeps until then.
  Submission::Part start_submission(Execution& execution, std::function<void()> finished);
  /// Hands one launch's execution to the async engine, whose thread calls `finished` at the end.
  void submit_run(Execution& execution, std::function<void()> finished);
  /// Nothing is on a host stream, or under way on a device.
  [[nodiscard]] bool is_idle() const noexcept {
    return submitted_.load(std::memory_order_acquire) == 0;
  }
  /// Nor is the async engine's thread in the last submission.
  [[nodiscard]] bool is_left() const noexcept {
    return is_idle() && inside_.load(std::memory_order_acquire) == 0;
  }
  /// Blocks until is_idle().
  void wait_submitted();

 private:
  /// Calls of CUDA ranks end after they have returned, and graphs repeat them.
  [[nodiscard]] static bool can_measure(std::span<const PeerInfo> infos) {
    return std::none_of(infos.begin(), infos.end(),
                        [](const PeerInfo& info) { return info.on_cuda(); });
  }
  static bool spans_devices(const LaunchContext& context);
  /// All ranks come here with the same number of collectives behind them: whether a group of calls
  /// is chosen by the old or the new is decided by its first one.
  Result<void> follow_change() {
    const bool is_due =
        context_.changes_at != nullptr &&
        context_.log->collectives() >= context_.changes_at->load(std::memory_order_relaxed);
    return is_due ? make_change() : ok();
  }
  Result<void> make_change();
  Result<void> run(Plan& plan);
  void fill_in(Plan& plan, std::span<const Task> tasks);
  std::function<void()> finish_submission(std::function<void()> finished);

  LaunchContext context_;
  KnownPlaces places_;
  bool repeats_;  // no profiler wants to be told of a call, and none needs a launch
  bool spans_devices_;
  TrialRunner trial_runner_;
  OngoingTrial* trial_ = nullptr;  // of the newest plan, if that is of a trial
  PlanCache plans_;
  bool is_released_ = false;
  DeviceOrder order_;
  Engine engine_;
  std::atomic<int> submitted_{0};
  std::atomic<int> inside_{0};  // the engine's thread has not left yet
};

}  // namespace plexus
