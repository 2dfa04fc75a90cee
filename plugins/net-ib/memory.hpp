// SPDX-License-Identifier: Apache-2.0
// Registration: one per range and kind of memory and card, counted among its users. A range inside
// a registered one shares it. The last release ends it at once, so that memory that is freed and
// mapped again never uses an old registration.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "plugins/net-ib/verbs.hpp"

namespace plexus::net_ib {

class MemoryCache {
 public:
  /// `pd` must outlive the cache.
  MemoryCache(ibv_pd* pd, bool orders_relaxed) : pd_(pd), orders_relaxed_(orders_relaxed) {}

  /// Adds one user of the range. `where`: the card, for error messages. Threads: any.
  [[nodiscard]] Result<ibv_mr*> acquire(const plexus_net_region_t& region, const char* where);
  /// Removes one user; the last one ends the registration. Threads: any.
  void release(ibv_mr* registration);

 private:
  struct Entry {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    uint32_t kind = PLEXUS_MEMORY_HOST;
    MrPtr registration;
    uint32_t users = 0;
  };
  [[nodiscard]] Result<MrPtr> make(const plexus_net_region_t& region, const char* where) const;

  ibv_pd* pd_;
  bool orders_relaxed_;
  std::mutex mutex_;
  std::vector<Entry> entries_;  // guarded by mutex_
};

/// Access to memory of ours that the peer writes to, in the order in which it writes.
[[nodiscard]] Result<MrPtr> register_ordered(ibv_pd* pd, void* data, size_t size_bytes);

}  // namespace plexus::net_ib
