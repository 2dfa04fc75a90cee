// SPDX-License-Identifier: Apache-2.0
// Registration: of host memory for providers that need it (FI_MR_LOCAL), of GPU memory always. One
// per range, kind of memory and domain, shared by all connections that ask for it and counted. The
// last one that lets go ends it at once, so memory that is freed and mapped again never meets an
// old registration.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "plugin-api/plexus_net.h"

#include "plugins/net-ofi/device_memory.hpp"
#include "plugins/net-ofi/fabric.hpp"

namespace plexus::net_ofi {

class MemoryCache {
 public:
  /// `domain` outlives the cache. `driver`: knows the GPU memory, which the domain takes; nullopt:
  /// it takes none.
  MemoryCache(fid_domain* domain, std::optional<CudaDriver> driver)
      : domain_(domain), driver_(driver) {}

  /// Counts one more user of the range. `where`: the device, for messages. Threads: any.
  [[nodiscard]] Result<fid_mr*> acquire(const plexus_net_region_t& region, const char* where);
  /// One user less; the last one ends the registration.
  void release(fid_mr* registration);

  /// Ranges that are registered now.
  [[nodiscard]] size_t size() const;

 private:
  using Key = std::tuple<const void*, uint64_t, uint32_t>;  // address, bytes, kind
  struct Entry {
    FidPtr<fid_mr> registration;
    uint32_t users = 0;
  };
  [[nodiscard]] Result<FidPtr<fid_mr>> make(const plexus_net_region_t& region, const char* where);

  fid_domain* domain_;
  std::optional<CudaDriver> driver_;
  mutable std::mutex mutex_;
  uint64_t next_key_ = 1;  // providers without FI_MR_PROV_KEY want one of their own each
  std::map<Key, Entry> entries_;
};

}  // namespace plexus::net_ofi
