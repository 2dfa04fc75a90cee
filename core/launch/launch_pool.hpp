// SPDX-License-Identifier: Apache-2.0
// Pinned memory for the tables of launches. A device's is taken when communicators are made, so
// that a launch beside running kernels calls no allocator; what exceeds it is taken in large
// pieces. None goes back to the driver, which would wait for kernels.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/device/device_memory.hpp"

namespace plexus {

/// The memory of one launch. Shared by the runs of its communicators and the pool, or a graph. It
/// is free when no run has it: a run gives it up when the kernel has said that it needs it no more.
struct LaunchRecord {
  std::byte* memory;
  size_t size_bytes;
};

/// Threads: any. It lives as long as the process.
class LaunchPool {
 public:
  /// A communicator on `device` may have so many bytes in flight, until release().
  Result<void> reserve(DeviceRuntime& runtime, int device, size_t size_bytes);
  void release(int device, size_t size_bytes) noexcept;

  Result<std::shared_ptr<LaunchRecord>> take(DeviceRuntime& runtime, int device, size_t size_bytes);
  /// A record that comes back when its last owner gives it up.
  Result<std::shared_ptr<LaunchRecord>> take_for_graph(DeviceRuntime& runtime,
                                                       int device,
                                                       size_t size_bytes);

 private:
  struct Arena {
    std::vector<DeviceMemory> pieces;
    size_t piece_bytes = 0;     // of the last one
    size_t used_bytes = 0;      // of the last one
    size_t taken_bytes = 0;     // all pieces
    size_t reserved_bytes = 0;  // of the communicators that there are
    // [size]: records of launches, the oldest first; and those that graphs have given back.
    std::map<size_t, std::deque<std::shared_ptr<LaunchRecord>>> records;
    std::map<size_t, std::vector<LaunchRecord>> spare;
  };
  Result<void> grow(DeviceRuntime& runtime, int device, size_t size_bytes);
  Result<LaunchRecord> find_or_cut(DeviceRuntime& runtime, int device, size_t rounded);

  std::mutex mutex_;
  std::map<int, Arena> arenas_;  // by device; guarded by mutex_
};

}  // namespace plexus
