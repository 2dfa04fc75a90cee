// SPDX-License-Identifier: Apache-2.0
// What a CUDA rank keeps where its kernels see it, for all plans of its communicator: the words by
// which host and kernels talk, and an entry for each end of a connection, which counts its steps.
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

/// Threads: stop() and control() from any, the rest as the communicator's calls.
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
  /// Every kernel of the rank ends soon, those that have not begun too.
  void stop() noexcept;
  /// What a kernel wrote; nullptr: none has failed.
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
  std::vector<DeviceMemory> chunks_;  // of entries
  size_t chunk_bytes_used_ = 0;       // of the last one
};

}  // namespace plexus
