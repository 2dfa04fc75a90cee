// SPDX-License-Identifier: Apache-2.0
// GPU memory (libfabric: FI_HMEM): the GPU that an address belongs to, the promises required from
// endpoints before GPU memory is offered, and definitions from libfabric versions newer than the
// headers that the plugin is compiled with (1.17), reproduced here from the published interface.
//
// The only call to CUDA is the query which device a pointer belongs to, and endpoints promise that
// libfabric makes none: a CUDA call may wait for the kernel that waits for the message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "plugin-api/plexus_net.h"

#include "plugins/net-ofi/fabric.hpp"
#include "plugins/net-ofi/settings.hpp"

namespace plexus::net_ofi {

// ---- libfabric newer than 1.17 ----

/// The first version whose fi_mr_regattr accepts a dma-buf.
inline constexpr uint32_t kDmabufVersion = FI_VERSION(1, 20);
/// FI_MR_DMABUF, a flag of fi_mr_regattr.
inline constexpr uint64_t kMrDmabuf = uint64_t{1} << 40;
/// fi_mr_dmabuf, which fi_mr_attr points to instead of `mr_iov` with that flag.
struct MrDmabuf {
  int fd;
  uint64_t offset;  // offset of the region in the dma-buf
  size_t len;
  void* base_addr;  // address of the dma-buf; the region is at base_addr + offset
};
/// fi_mr_attr, extended at its end because newer libraries read further fields, which must be zero.
struct MrAttributes {
  fi_mr_attr known;
  std::array<uint64_t, 8> later;
};
/// The first version that can promise to make no CUDA calls.
inline constexpr uint32_t kDeviceMemoryVersion = FI_VERSION(1, 18);
/// FI_OPT_CUDA_API_PERMITTED, from that version on; its value is a bool.
inline constexpr int kOptCudaApiPermitted = 10;

[[nodiscard]] MrDmabuf dmabuf_of(const plexus_net_region_t& region) noexcept;

/// The version to pass to fi_getinfo for GPU memory: the library's, up to the one needed.
[[nodiscard]] uint32_t device_memory_version() noexcept;

/// "host memory" or "GPU memory", for error messages.
[[nodiscard]] const char* kind_text(uint32_t kind) noexcept;

// ---- CUDA ----

/// The single query to CUDA's driver, which is loaded if the process has GPU memory.
class CudaDriver {
 public:
  /// The driver that the process has loaded. `loads`: load it if it is not.
  [[nodiscard]] static Result<CudaDriver> find(bool loads);

  /// The number of the GPU whose memory `pointer` belongs to.
  [[nodiscard]] Result<int> find_device(const void* pointer) const;

 private:
  using PointerAttribute = int (*)(void* value, int attribute, unsigned long long pointer);
  explicit CudaDriver(PointerAttribute attribute) : attribute_(attribute) {}
  PointerAttribute attribute_;
};

// ---- endpoints ----

/// Requires an endpoint that is not enabled yet to let the NIC itself access GPU memory, without
/// CUDA calls. An Error: it does not support that.
[[nodiscard]] Result<void> demand_direct_access(fid_ep& endpoint, const std::string& where);

}  // namespace plexus::net_ofi
