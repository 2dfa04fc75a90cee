// SPDX-License-Identifier: Apache-2.0
// Where a rank computes: PLEXUS_DEVICE, and what this machine has.
#pragma once

#include <string>

#include "core/device/device_runtime.hpp"

namespace plexus {

/// CUDA as this process has it: linked statically, usable without a driver (`count` then says why
/// there is no device). nullptr: this build is without CUDA.
DeviceRuntime* cuda_runtime();

inline constexpr int kHostDevice = -1;

/// The device of a new rank, kHostDevice: the host. `setting`: auto, cuda or host. `wish`: a device
/// that the user names; kHostDevice: the one that is current in the calling thread.
Result<int> choose_device(DeviceRuntime* runtime, const std::string& setting, int wish);

}  // namespace plexus
