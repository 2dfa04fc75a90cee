// SPDX-License-Identifier: Apache-2.0
// GPU memory (libfabric: FI_HMEM): which GPU an address belongs to, what endpoints have to promise
// before GPU memory is offered, and what libfabric has for it since versions newer than the headers
// that this is compiled with (1.17), laid out here from its published interface.
//
// Nothing here calls CUDA but for the question where a pointer points, and endpoints promise that
// libfabric does not either: a call of CUDA may wait for the kernel that waits for the message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "plugin-api/plexus_net.h"

#include "plugins/net-ofi/fabric.hpp"
#include "plugins/net-ofi/settings.hpp"

namespace plexus::net_ofi {

// ---- libfabric beyond 1.17 ----

/// The first version whose fi_mr_regattr takes a dma-buf.
inline constexpr uint32_t kDmabufVersion = FI_VERSION(1, 20);
/// FI_MR_DMABUF, a flag of fi_mr_regattr.
inline constexpr uint64_t kMrDmabuf = uint64_t{1} << 40;
/// fi_mr_dmabuf, to which fi_mr_attr points in place of `mr_iov` with that flag.
struct MrDmabuf {
  int fd;
  uint64_t offset;  // of the region in the dma-buf
  size_t len;
  void* base_addr;  // of the dma-buf: the region is at base_addr + offset
};
/// fi_mr_attr grew at its end; libraries that are newer read zeros there.
struct MrAttributes {
  fi_mr_attr known;
  std::array<uint64_t, 8> later;
};
/// The first version that can promise to make no calls of CUDA.
inline constexpr uint32_t kDeviceMemoryVersion = FI_VERSION(1, 18);
/// FI_OPT_CUDA_API_PERMITTED, since then; its value is a bool.
inline constexpr int kOptCudaApiPermitted = 10;

[[nodiscard]] MrDmabuf dmabuf_of(const plexus_net_region_t& region) noexcept;

/// The version to ask fi_getinfo for when GPU memory is wanted: of the library, as far as needed.
[[nodiscard]] uint32_t device_memory_version() noexcept;

/// "host memory", "GPU memory", for messages.
[[nodiscard]] const char* kind_text(uint32_t kind) noexcept;

// ---- CUDA ----

/// The one question for CUDA's driver, which is there when the process has GPU memory.
class CudaDriver {
 public:
  /// The driver that the process has loaded. `loads`: loads it when it has not.
  [[nodiscard]] static Result<CudaDriver> find(bool loads);

  /// The number of the GPU whose memory `pointer` points to.
  [[nodiscard]] Result<int> find_device(const void* pointer) const;

 private:
  using PointerAttribute = int (*)(void* value, int attribute, unsigned long long pointer);
  explicit CudaDriver(PointerAttribute attribute) : attribute_(attribute) {}
  PointerAttribute attribute_;
};

// ---- endpoints ----

/// Makes an endpoint that is not enabled yet promise that the card itself reads and writes GPU
/// memory, without calls of CUDA. A failure: it does not.
[[nodiscard]] Result<void> demand_direct_access(fid_ep& endpoint, const std::string& where);

}  // namespace plexus::net_ofi
