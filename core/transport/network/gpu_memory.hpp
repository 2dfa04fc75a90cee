// SPDX-License-Identifier: Apache-2.0
// GPU memory for a network card: registered with a net plugin by dma-buf where both sides have it,
// else by its address. Called by core/transport/network/net when it makes slots.
#pragma once

#include <functional>

#include "core/device/device_runtime.hpp"
#include "core/plugin/net_plugin.hpp"

namespace plexus {

/// Memory of a GPU, from DeviceRuntime::allocate.
struct GpuRegion {
  DeviceRuntime* runtime = nullptr;
  int device = -1;
  std::byte* data = nullptr;
  size_t size_bytes = 0;
  uint32_t kinds = 0;  // PLEXUS_MEMORY_* mask of what to try, DMABUF first
};

struct RegisteredGpuMemory {
  NetMemory memory;
  bool by_dmabuf = false;
};

/// `add` registers with the plugin. An Error says why no kind was possible.
[[nodiscard]] Result<RegisteredGpuMemory> register_gpu_memory(
    const GpuRegion& region,
    const std::function<Result<NetMemory>(const plexus_net_region_t&)>& add);

}  // namespace plexus
