// SPDX-License-Identifier: Apache-2.0
// In place of cuda_runtime.cpp where there is no CUDA toolkit, or it is not wanted.
#include "core/device/choose_device.hpp"

namespace plexus {

DeviceRuntime* cuda_runtime() { return nullptr; }

}  // namespace plexus
