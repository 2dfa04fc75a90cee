// SPDX-License-Identifier: Apache-2.0
// The choice of the device that a rank computes on: PLEXUS_DEVICE, and the devices of this machine.
#pragma once

#include <string>

#include "core/device/device_runtime.hpp"

namespace plexus {

/// The CUDA runtime of this process. It is linked statically and usable without a driver (`count`
/// then says why there is no device). nullptr: this build is without CUDA.
DeviceRuntime* cuda_runtime();

inline constexpr int kHostDevice = -1;

/// The device of a new rank; kHostDevice: the host. `setting`: auto, cuda or host. `wish`: the
/// device that the user names; kHostDevice: the calling thread's current device.
Result<int> choose_device(DeviceRuntime* runtime, const std::string& setting, int wish);

}  // namespace plexus
