// SPDX-License-Identifier: Apache-2.0
// One communicator's part of a launch from its preparation until the kernel has left it, and the
// order of a communicator's launches.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/launch/launch_pool.hpp"
#include "core/schedule/plan.hpp"

namespace plexus {

class CallRunner;

/// In a captured graph it is used by each replay. Its poll() calls no driver: that the kernel has
/// ended is seen in pinned memory, and failures of the device are found by DeviceWatch's thread.
class DeviceRun final : public RemoteWork {
 public:
  explicit DeviceRun(CallRunner& runner);
  ~DeviceRun() override;
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;

  /// `done`: [queues], see DeviceQueue::done.
  void prepare(Plan& plan, std::shared_ptr<LaunchRecord> record, uint64_t* done, bool in_graph);
  /// Hands it to the async engine.
  void submit();
  /// The launch has failed: no kernel will tell that it has ended.
  void abandon() noexcept { abandoned_.store(true, std::memory_order_release); }
  Result<bool> poll() noexcept override;
  uint64_t take_begun() noexcept override;
  [[nodiscard]] const CallRecord& call() const noexcept override { return calls_.front(); }
  /// The error for a failed kernel; nullopt: the failure is not in a call of this run.
  [[nodiscard]] std::optional<Error> describe(const DeviceFailure& failure) const;
  [[nodiscard]] bool has_pumps() const noexcept { return execution_.pumps; }
  [[nodiscard]] bool is_free() const noexcept { return free_.load(std::memory_order_acquire); }

  // Called from a graph's streams (DeviceRuntime::call_host). They do not wait: one thread of the
  // driver calls the host functions of all streams (docs/gpu-results.md).
  static void begin_replay(void* run);
  static void end_replay(void* run);

 private:
  friend class CapturedRuns;
  [[nodiscard]] bool all_done() const noexcept;
  /// Hands it to the async engine, unless that has it.
  void serve_replays();
  void finish() noexcept;
  void finish_replays();

  CallRunner* runner_;
  DeviceRank* rank_;
  Plan* plan_ = nullptr;
  Execution execution_;
  std::vector<CallRecord> calls_;  // of all works
  std::shared_ptr<LaunchRecord> record_;
  uint64_t* done_ = nullptr;
  size_t queues_ = 0;
  bool in_graph_ = false;
  bool graph_is_gone_ = false;          // guarded by CapturedRuns
  std::atomic<bool> replaying_{false};  // the engine has it
  std::atomic<uint64_t> replays_begun_{0};
  std::atomic<uint64_t> replays_ended_{0};  // the stream is past the kernel
  // Owned by the engine's thread: replays whose slots were moved, and those that it knows of.
  uint64_t replays_served_ = 0;
  uint64_t calls_known_ = 0;
  std::atomic<bool> abandoned_{false};
  std::atomic<bool> free_{true};
};

/// The runs of a communicator's graphs, each until its graph is gone. Graphs that outlive the
/// communicator keep this. Threads: any.
class CapturedRuns : public std::enable_shared_from_this<CapturedRuns> {
 public:
  DeviceRun& add(CallRunner& runner);
  /// What the graph has to hand to DeviceRuntime::call_after_graph, with end_graph(). It keeps the
  /// record.
  void* hold(DeviceRun& run, std::shared_ptr<LaunchRecord> record);
  static void end_graph(void* held) noexcept;
  /// The communicator ends.
  void close() noexcept;
  [[nodiscard]] std::optional<Error> describe(const DeviceFailure& failure) const;
  [[nodiscard]] size_t size() const noexcept;
  /// The engine has served all replays that have begun.
  void leave_engine(DeviceRun& run);

 private:
  struct Held {
    std::shared_ptr<CapturedRuns> runs;
    DeviceRun* run;
    std::shared_ptr<LaunchRecord> record;
  };
  void erase(const DeviceRun& run) noexcept;

  mutable std::mutex mutex_;
  std::map<const DeviceRun*, std::unique_ptr<DeviceRun>> runs_;  // guarded by mutex_
};

/// Orders a communicator's launches, and keeps runs that can be used again.
/// Threads: describe() from any, the rest as the communicator's calls.
class DeviceOrder {
 public:
  DeviceOrder() = default;
  ~DeviceOrder() { captured_->close(); }
  DeviceOrder(const DeviceOrder&) = delete;
  DeviceOrder& operator=(const DeviceOrder&) = delete;

  /// A free run, or a new one, prepared for the plan.
  DeviceRun& start_run(CallRunner& runner,
                       Plan& plan,
                       std::shared_ptr<LaunchRecord> record,
                       uint64_t* done,
                       bool in_graph);
  /// Makes `stream` wait for this communicator's last launch. A graph waits, at each replay, for
  /// what is outside it.
  Result<void> come_after(const CallRunner& runner,
                          DeviceStream stream,
                          const Capture& capture) const;
  /// Records that the communicator's last launch is the work that `stream` has now.
  Result<void> note(const CallRunner& runner, DeviceStream stream, const Capture& capture);
  /// The error for a failed kernel.
  [[nodiscard]] Error describe(const DeviceFailure& failure) const;
  [[nodiscard]] CapturedRuns& captured() noexcept { return *captured_; }

 private:
  mutable std::mutex mutex_;
  std::list<std::unique_ptr<DeviceRun>> runs_;  // guarded by mutex_; the longest used first
  std::shared_ptr<CapturedRuns> captured_ = std::make_shared<CapturedRuns>();
  bool any_ = false;         // a launch was noted
  uint64_t capture_id_ = 0;  // of the last one; 0: it was not captured
};

}  // namespace plexus
