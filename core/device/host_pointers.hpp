// SPDX-License-Identifier: Apache-2.0
// Notices memory of a GPU that is passed to a rank on the host, which would end the process. Asked
// in every call, so what was found to be of the host is remembered.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>

#include "core/device/device_runtime.hpp"

namespace plexus {

/// Threads: any, for may_read().
class HostPointers {
 public:
  /// `runtime`: nullptr, or without a driver: all pointers may be read.
  void ask(DeviceRuntime* runtime) noexcept {
    runtime_ = runtime != nullptr && runtime->has_driver() ? runtime : nullptr;
  }

  [[nodiscard]] bool may_read(const void* pointer) noexcept {
    const auto is_it = [pointer](const std::atomic<const void*>& each) {
      return each.load(std::memory_order_relaxed) == pointer;
    };
    if (runtime_ == nullptr || std::any_of(known_.begin(), known_.end(), is_it)) {
      return true;
    }
    if (runtime_->is_on_device_alone(pointer)) {
      return false;
    }
    const size_t at = next_.fetch_add(1, std::memory_order_relaxed) % known_.size();
    known_[at].store(pointer, std::memory_order_relaxed);
    return true;
  }

 private:
  DeviceRuntime* runtime_ = nullptr;
  std::array<std::atomic<const void*>, 8> known_ = {};
  std::atomic<size_t> next_{0};
};

}  // namespace plexus
