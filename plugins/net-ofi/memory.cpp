// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/memory.hpp"

#include <algorithm>
#include <sys/uio.h>

namespace plexus::net_ofi {

Result<FidPtr<fid_mr>> MemoryCache::make(const plexus_net_region_t& region, const char* where) {
  const iovec range = {region.data, region.size_bytes};
  fi_mr_attr attributes{};
  attributes.mr_iov = &range;
  attributes.iov_count = 1;
  attributes.access = FI_SEND | FI_RECV;
  attributes.requested_key = next_key_++;
  fid_mr* made = nullptr;
  const int result = ::fi_mr_regattr(domain_, &attributes, 0, &made);
  FidPtr<fid_mr> owner(made);
  if (result != 0) {
    return fail(
        PLEXUS_SYSTEM_ERROR,
        "cannot register {} bytes with {}: {}; raise the limit of locked memory (ulimit -l)",
        region.size_bytes, where, error_text(result));
  }
  return owner;
}

Result<fid_mr*> MemoryCache::acquire(const plexus_net_region_t& region, const char* where) {
  const std::scoped_lock lock(mutex_);
  const Key key(region.data, region.size_bytes);
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    PLEXUS_TRY(registration, make(region, where));
    found = entries_.emplace(key, Entry{std::move(registration), 0}).first;
  }
  ++found->second.users;
  return found->second.registration.get();
}

void MemoryCache::release(fid_mr* registration) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) {
    return entry.second.registration.get() == registration;
  });
  if (found != entries_.end() && --found->second.users == 0) {
    entries_.erase(found);
  }
}

size_t MemoryCache::size() const {
  const std::scoped_lock lock(mutex_);
  return entries_.size();
}

}  // namespace plexus::net_ofi
