// SPDX-License-Identifier: Apache-2.0
// Registration of host memory for providers that need it (FI_MR_LOCAL), and of GPU memory always.
// One registration per range, kind of memory and domain, shared and counted among connections. The
// last release ends it at once, so that memory that is freed and mapped again never uses an old
// registration.
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
  /// `domain` must outlive the cache. `driver`: identifies GPU memory; nullopt: the domain does not
  /// support GPU memory.
  MemoryCache(fid_domain* domain, std::optional<CudaDriver> driver)
      : domain_(domain), driver_(driver) {}

  /// Adds one user of the range. `where`: the device, for error messages. Threads: any.
  [[nodiscard]] Result<fid_mr*> acquire(const plexus_net_region_t& region, const char* where);
  /// Removes one user; the last one ends the registration.
  void release(fid_mr* registration);

  /// Number of registered ranges.
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
  uint64_t next_key_ = 1;  // providers without FI_MR_PROV_KEY need a unique key per registration
  std::map<Key, Entry> entries_;
};

}  // namespace plexus::net_ofi
