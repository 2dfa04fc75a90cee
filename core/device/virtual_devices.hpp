// SPDX-License-Identifier: Apache-2.0
// Whether a library that stands for CUDA's runtime is in this process (virtual_devices.h).
#pragma once

#include <atomic>

#include "core/device/virtual_devices.h"

namespace plexus {

/// nullptr: there is none. Set once, when such a library is loaded, and kept by children made by
/// fork.
inline std::atomic<const plexusVirtualDevices*>& virtual_devices_slot() noexcept {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): a fact of the process
  static constinit std::atomic<const plexusVirtualDevices*> slot{nullptr};
  return slot;
}

inline const plexusVirtualDevices* virtual_devices() noexcept {
  return virtual_devices_slot().load(std::memory_order_acquire);
}

}  // namespace plexus
