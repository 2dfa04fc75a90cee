// SPDX-License-Identifier: Apache-2.0
// Replaces cuda_runtime.cpp in builds without the CUDA toolkit.
#include "core/device/choose_device.hpp"

namespace plexus {

DeviceRuntime* cuda_runtime() { return nullptr; }

}  // namespace plexus
