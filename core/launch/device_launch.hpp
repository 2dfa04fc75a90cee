// SPDX-License-Identifier: Apache-2.0
// Calls of CUDA ranks: all plans that a group has for one device become one launch, in which all
// blocks are resident together, on the user's stream. The async engine then moves the pumps of
// their connections and sees how the launch ends.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/launch/launch_pool.hpp"
#include "core/schedule/plan.hpp"

namespace plexus {

class CallRunner;

/// One communicator's part of a launch until it has ended; in a captured graph it is used by each
/// replay.
class DeviceRun final : public RemoteWork {
 public:
  explicit DeviceRun(CallRunner& runner);

  /// `done`: [queues], where the kernel counts finished works.
  void prepare(Plan& plan, std::shared_ptr<LaunchRecord> record, uint64_t* done, bool in_graph);
  /// Hands it to the async engine.
  void submit();
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
  [[nodiscard]] bool all_done() const noexcept;
  /// Hands it to the async engine, unless that has it.
  void serve_replays();

  CallRunner* runner_;
  DeviceRank* rank_;
  Plan* plan_ = nullptr;
  Execution execution_;
  std::vector<CallRecord> calls_;  // of all works
  std::shared_ptr<LaunchRecord> record_;
  uint64_t* done_ = nullptr;
  std::vector<uint32_t> works_;  // by queue
  bool in_graph_ = false;
  std::atomic<bool> replaying_{false};  // the engine has it
  std::atomic<uint64_t> replays_begun_{0};
  std::atomic<uint64_t> replays_ended_{0};  // the stream is past the kernel
  // Of the engine's thread: replays whose slots were moved, and those that it knows of.
  uint64_t replays_served_ = 0;
  uint64_t calls_known_ = 0;
  uint32_t polls_ = 0;
  std::atomic<bool> free_{true};
};

/// Orders a communicator's launches, and keeps runs that can be used again.
/// Threads: describe() from any, the rest as the communicator's calls.
class DeviceOrder {
 public:
  /// A free run, or a new one, prepared for the plan.
  DeviceRun& start_run(CallRunner& runner,
                       Plan& plan,
                       std::shared_ptr<LaunchRecord> record,
                       uint64_t* done,
                       bool in_graph);
  /// Makes `stream` wait for this communicator's last launch.
  Result<void> come_after(DeviceRank& rank, DeviceStream stream, const Capture& capture);
  /// Records that the communicator's last launch is the work that `stream` has now.
  Result<void> note(DeviceRank& rank, DeviceStream stream, const Capture& capture);
  [[nodiscard]] DeviceEvent last() const noexcept { return last_.get(); }
  /// The error for a failed kernel of a graph, whose runs no thread watches if nothing is pumped.
  [[nodiscard]] Error describe(const DeviceFailure& failure) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<DeviceRun>> runs_;      // guarded by mutex_
  std::vector<std::unique_ptr<DeviceRun>> captured_;  // likewise; of graphs, never free
  OwnedEvent last_;                                   // recorded after the last launch
  bool any_ = false;
  DeviceStream stream_ = nullptr;
  uint64_t capture_id_ = 0;
};

/// One communicator's part of a group.
struct DeviceCalls {
  CallRunner* runner;
  Plan* plan;  // prepared
  std::span<const Task> tasks;
};

/// Connects what is not connected yet, launches, returns. A failure fails all communicators.
Result<void> run_on_devices(std::span<const DeviceCalls> calls,
                            std::span<Execution* const> on_host);

}  // namespace plexus
