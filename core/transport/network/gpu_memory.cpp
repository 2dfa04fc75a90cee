// SPDX-License-Identifier: Apache-2.0
#include "core/transport/network/gpu_memory.hpp"

#include <unistd.h>

namespace plexus {
namespace {

using Register = std::function<Result<NetMemory>(const plexus_net_region_t&)>;

Result<NetMemory> register_by_dmabuf(const GpuRegion& region, const Register& add) {
  PLEXUS_TRY(dmabuf, region.runtime->export_dmabuf(region.device, region.data, region.size_bytes));
  auto memory = add({.data = region.data,
                     .size_bytes = region.size_bytes,
                     .dmabuf_offset_bytes = dmabuf.offset_bytes,
                     .dmabuf_fd = dmabuf.fd,
                     .kind = PLEXUS_MEMORY_DMABUF});
  ::close(dmabuf.fd);  // the plugin has its own, if it needs one
  return memory;
}

}  // namespace

Result<RegisteredGpuMemory> register_gpu_memory(const GpuRegion& region, const Register& add) {
  std::string why;
  if ((region.kinds & PLEXUS_MEMORY_DMABUF) != 0) {
    auto memory = register_by_dmabuf(region, add);
    if (memory.has_value()) {
      return RegisteredGpuMemory{.memory = std::move(memory).value(), .by_dmabuf = true};
    }
    why = memory.error().message();
  }
  if ((region.kinds & PLEXUS_MEMORY_CUDA) != 0) {
    auto memory = add({.data = region.data,
                       .size_bytes = region.size_bytes,
                       .dmabuf_offset_bytes = 0,
                       .dmabuf_fd = -1,
                       .kind = PLEXUS_MEMORY_CUDA});
    if (memory.has_value()) {
      return RegisteredGpuMemory{.memory = std::move(memory).value(), .by_dmabuf = false};
    }
    why += why.empty() ? "" : "; ";
    why += memory.error().message();
  }
  return fail(Code::kSystemError, "{}", why);
}

}  // namespace plexus
