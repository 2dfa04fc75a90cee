// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/device_memory.hpp"

#include <algorithm>
#include <dlfcn.h>

namespace plexus::net_ofi {
namespace {

// Values of CUDA's driver interface.
constexpr int kCudaSuccess = 0;
constexpr int kAttributeMemoryType = 2;
constexpr int kAttributeDeviceOrdinal = 9;
constexpr int kMemoryTypeDevice = 2;

}  // namespace

MrDmabuf dmabuf_of(const plexus_net_region_t& region) noexcept {
  auto* const base = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(region.data) -
                                             region.dmabuf_offset_bytes);
  return {region.dmabuf_fd, region.dmabuf_offset_bytes, region.size_bytes, base};
}

uint32_t device_memory_version() noexcept { return std::min(library().version(), kDmabufVersion); }

const char* kind_text(uint32_t kind) noexcept {
  switch (kind) {
    case PLEXUS_MEMORY_HOST:
      return "host memory";
    case PLEXUS_MEMORY_CUDA:
      return "GPU memory";
    case PLEXUS_MEMORY_DMABUF:
      return "GPU memory in a dma-buf";
    default:
      return "memory of an unknown kind";
  }
}

Result<CudaDriver> CudaDriver::find(bool loads) {
  // Never closed, like the handle of whoever loaded it first.
  void* const file = ::dlopen("libcuda.so.1", RTLD_NOW | (loads ? 0 : RTLD_NOLOAD));
  if (file == nullptr) {
    return fail(PLEXUS_SYSTEM_ERROR, "{}",
                loads ? "CUDA's driver libcuda.so.1 cannot be loaded"
                      : "the process has not loaded CUDA's driver");
  }
  const auto attribute = reinterpret_cast<PointerAttribute>(::dlsym(file, "cuPointerGetAttribute"));
  if (attribute == nullptr) {
    return fail(PLEXUS_SYSTEM_ERROR, "CUDA's driver has no cuPointerGetAttribute");
  }
  return CudaDriver(attribute);
}

Result<int> CudaDriver::find_device(const void* pointer) const {
  const auto address = static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(pointer));
  unsigned type = 0;
  int device = -1;
  if (attribute_(&type, kAttributeMemoryType, address) != kCudaSuccess ||
      attribute_(&device, kAttributeDeviceOrdinal, address) != kCudaSuccess ||
      type != kMemoryTypeDevice || device < 0) {
    return fail(PLEXUS_INVALID_ARGUMENT,
                "{} was registered as GPU memory, but CUDA does not know it; register host memory "
                "as host memory",
                pointer);
  }
  return device;
}

Result<void> demand_direct_access(fid_ep& endpoint, const std::string& where) {
  const int required = FI_HMEM_P2P_REQUIRED;
  int result =
      ::fi_setopt(&endpoint.fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &required, sizeof required);
  if (result != 0) {
    return fail(PLEXUS_SYSTEM_ERROR,
                "{} does not guarantee that the NIC itself reads and writes GPU memory: {}", where,
                error_text(result));
  }
  const bool permitted = false;
  result = ::fi_setopt(&endpoint.fid, FI_OPT_ENDPOINT, kOptCudaApiPermitted, &permitted,
                       sizeof permitted);
  if (result != 0) {
    return fail(PLEXUS_SYSTEM_ERROR, "{} does not guarantee to make no CUDA calls: {}", where,
                error_text(result));
  }
  return ok();
}

}  // namespace plexus::net_ofi
