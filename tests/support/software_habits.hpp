// SPDX-License-Identifier: Apache-2.0
// What drivers and GPUs do besides what they promise, for the software device: habits that were
// seen somewhere or that documents allow. Each can be had alone, because a library that hangs with
// one of them hangs on somebody's machine.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

#include "core/device/device_runtime.hpp"

namespace plexus::testing_device {

struct SoftwareHabits {
  int queues = 0;                    // in hardware, that start work in order; 0: one per stream
  bool cooperative_alone = false;    // cooperative grids of a device run one by one
  bool launch_blocking = false;      // CUDA_LAUNCH_BLOCKING=1: a launch returns when it has ended
  bool free_waits = false;           // giving back or unpinning memory waits for all kernels
  bool driver_lock = false;          // who frees, or starts a new kernel, keeps others from calls
  bool clearing_needs_room = false;  // clearing and copies run on a stream, beside kernels
  bool refuses_ipc = false;          // memory of one process is not opened by another
  bool refuses_cumem = false;        // no memory by cuMemCreate
  bool refuses_export = false;       // no descriptors of such memory
  bool refuses_import = false;       // and no memory by descriptors
  uint32_t block_threads = 1;        // of every block
  bool strict = true;                // faults of CallRules end the process

  /// "queues=8,free_waits": names of the members, with their numbers. Exits for others.
  static SoftwareHabits parse(const std::string& text);
};

/// A GPU would fault and fail all later calls. Here the process ends with the reason.
[[noreturn]] void fault(const char* what, const void* address);

/// What core/device/device_runtime.hpp says of DriverCalls, checked at each call. Threads: any.
class CallRules {
 public:
  explicit CallRules(bool strict) : strict_(strict) {}

  static DriverCalls allow(DriverCalls calls) noexcept;
  /// Calls that no kernel holds up.
  void note_ordered(const char* call) const { check(call, DriverCalls::kOrdered); }
  /// Calls that take memory, or wait for a copy.
  void note_growing(const char* call) {
    check(call, DriverCalls::kGrowing);
    growth_.fetch_add(1);
  }
  /// Calls that may wait for all kernels.
  void note_waiting(const char* call) const { check(call, DriverCalls::kAll); }
  /// The calling thread is the driver's, which calls host functions.
  static void begin_host_function() noexcept;
  /// Growing calls so far.
  [[nodiscard]] size_t growth() const noexcept { return growth_.load(); }

  void begin_kernel();
  void end_kernel();
  /// For a driver that waits for all kernels. Ends the process if that takes longer than any test.
  void await_kernels(const char* call);

 private:
  void check(const char* call, DriverCalls needed) const;

  const bool strict_;
  std::atomic<size_t> growth_{0};
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  int kernels_ = 0;  // launched and not ended; guarded by mutex_
};

/// Starts its entries in the order in which they came; one that waits for its stream holds up those
/// behind it.
class HardwareQueue {
 public:
  uint64_t take();
  void await(uint64_t ticket);
  void pass();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t taken_ = 0;    // guarded by mutex_
  uint64_t started_ = 0;  // guarded by mutex_
};

}  // namespace plexus::testing_device
