// SPDX-License-Identifier: Apache-2.0
// Memory of a CUDA rank that its kernels access, shared by all plans of its communicator: the words
// through which host and kernels communicate, and an entry per connection end with its step
// counters.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "core/base/result.hpp"
#include "core/device/device_memory.hpp"
#include "core/transport/connection.hpp"
#include "kernels/cuda/device_work.hpp"

namespace plexus {

/// Threads: any for stop() and control(); one at a time, as the communicator's calls, for the rest.
class DeviceRank {
 public:
  static Result<std::unique_ptr<DeviceRank>> create(DeviceRuntime& runtime, int device);

  [[nodiscard]] DeviceRuntime& runtime() const noexcept { return *runtime_; }
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] DeviceControl* control() const noexcept {
    return reinterpret_cast<DeviceControl*>(control_.get());
  }
  [[nodiscard]] uint32_t* claimed() const noexcept {
    return reinterpret_cast<uint32_t*>(claimed_.get());
  }
  /// Makes every kernel of the rank end soon, including those that have not started.
  void stop() noexcept;
  /// The failure that a kernel reported; nullptr: none.
  [[nodiscard]] const DeviceFailure* failure() const noexcept;

  /// The entry of a connected end, made at the first call.
  Result<DeviceSend*> entry_of_send(DeviceEnd& end);
  Result<DeviceRecv*> entry_of_recv(DeviceEnd& end);

 private:
  DeviceRank(DeviceRuntime& runtime, int device) : runtime_(&runtime), device_(device) {}
  Result<std::byte*> store(const void* bytes, size_t size_bytes);

  DeviceRuntime* runtime_;
  int device_;
  DeviceMemory control_;
  DeviceMemory claimed_;
  std::vector<DeviceMemory> chunks_;  // memory for entries
  size_t chunk_bytes_used_ = 0;       // used bytes of the last chunk
};

}  // namespace plexus
