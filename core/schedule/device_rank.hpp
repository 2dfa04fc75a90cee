// SPDX-License-Identifier: Apache-2.0
// Memory of a CUDA rank that its kernels access, shared by all plans of its communicator: the words
// through which host and kernels communicate, and an entry per connection end with its step
// counters.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/result.hpp"
#include "core/device/device_watch.hpp"
#include "core/transport/connection.hpp"
#include "kernels/cuda/device_work.hpp"

namespace plexus {

/// Threads: any for stop(), control(), failure() and faults; one at a time, as the communicator's
/// calls, for the rest.
class DeviceRank {
 public:
  /// `watch` looks for faults of the device, and takes memory that is left beside kernels.
  static Result<std::unique_ptr<DeviceRank>> create(DeviceRuntime& runtime,
                                                    int device,
                                                    DeviceWatch& watch);

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
  [[nodiscard]] DeviceWatch& watch() const noexcept { return *watch_; }
  /// The driver says that the device has failed: no kernel tells its end any more. Once.
  void note_fault(Error fault);
  /// nullptr: none is known.
  [[nodiscard]] const Error* fault() const noexcept {
    return has_fault_.load(std::memory_order_acquire) ? &*fault_ : nullptr;
  }

  /// For the order of the communicator's launches.
  struct Events {
    OwnedEvent join;      // of a stream that a launch waits for; recorded anew for each
    OwnedEvent last;      // after the last launch, or the last replay of a graph
    OwnedEvent in_graph;  // after the last captured launch, within its graph
  };
  [[nodiscard]] const Events& events() const noexcept { return events_; }
  /// The failure that a kernel reported; nullptr: none.
  [[nodiscard]] const DeviceFailure* failure() const noexcept;

  /// The entry of a connected end, made at the first call.
  Result<DeviceSend*> entry_of_send(DeviceEnd& end);
  Result<DeviceRecv*> entry_of_recv(DeviceEnd& end);

 private:
  DeviceRank(DeviceRuntime& runtime, int device, DeviceWatch& watch)
      : runtime_(&runtime), device_(device), watch_(&watch) {}
  Result<std::byte*> store(const void* bytes, size_t size_bytes);

  DeviceRuntime* runtime_;
  int device_;
  DeviceWatch* watch_;
  Events events_;
  std::optional<Error> fault_;  // written once, before has_fault_
  std::atomic<bool> has_fault_{false};
  DeviceMemory control_;
  DeviceMemory claimed_;
  std::vector<DeviceMemory> chunks_;  // memory for entries
  size_t chunk_bytes_used_ = 0;       // used bytes of the last chunk
};

}  // namespace plexus
