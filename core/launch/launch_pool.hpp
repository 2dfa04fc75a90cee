// SPDX-License-Identifier: Apache-2.0
// Memory that launches need on a device until they have ended, kept for later launches.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/device/device_memory.hpp"

namespace plexus {

/// The memory of one launch. Shared by the runs of its communicators and the pool.
struct LaunchRecord {
  DeviceMemory memory;
  OwnedEvent ended;
  std::vector<OwnedEvent> joins;  // of streams that the launch waits for
};

/// Launch memory by device and size; free again when its launch has ended. Threads: any.
class LaunchPool {
 public:
  Result<std::shared_ptr<LaunchRecord>> take(DeviceRuntime& runtime, int device, size_t size_bytes);

 private:
  std::mutex mutex_;
  using Records = std::deque<std::shared_ptr<LaunchRecord>>;  // oldest first
  std::map<std::pair<int, size_t>, Records> records_;         // guarded by mutex_
};

/// Memory that is not from a pool: a graph keeps it.
Result<std::shared_ptr<LaunchRecord>> make_record(DeviceRuntime& runtime,
                                                  int device,
                                                  size_t size_bytes);

}  // namespace plexus
