// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/memory.hpp"

#include <algorithm>
#include <sys/uio.h>

#include "guest/assert.hpp"

namespace plexus::net_ofi {

Result<FidPtr<fid_mr>> MemoryCache::make(const plexus_net_region_t& region, const char* where) {
  const iovec range = {region.data, region.size_bytes};
  const MrDmabuf dmabuf = dmabuf_of(region);
  MrAttributes attributes{};
  uint64_t flags = 0;
  attributes.known.mr_iov = &range;
  attributes.known.iov_count = 1;
  attributes.known.access = FI_SEND | FI_RECV;
  attributes.known.requested_key = next_key_++;
  if (driver_) {
    attributes.known.access |= FI_READ;  // a flush reads into host memory
  }
  if (region.kind != PLEXUS_MEMORY_HOST) {
    PLEXUS_TRY(device, driver_->find_device(region.data));
    attributes.known.access |= FI_REMOTE_READ;  // a flush reads from GPU memory
    attributes.known.iface = FI_HMEM_CUDA;
    attributes.known.device.cuda = device;
  }
  if (region.kind == PLEXUS_MEMORY_DMABUF) {
    flags = kMrDmabuf;
    // the member is a union since 1.20
    attributes.known.mr_iov = reinterpret_cast<const iovec*>(&dmabuf);
  }
  fid_mr* made = nullptr;
  const int result = ::fi_mr_regattr(domain_, &attributes.known, flags, &made);
  FidPtr<fid_mr> owner(made);
  if (result != 0) {
    const char* const remedy = region.kind == PLEXUS_MEMORY_HOST
                                   ? "raise the limit of locked memory (ulimit -l)"
                                   : "set PLEXUS_OFI_HMEM=0 to do without GPU memory";
    return fail(PLEXUS_SYSTEM_ERROR, "cannot register {} bytes of {} with {}: {}; {}",
                region.size_bytes, kind_text(region.kind), where, error_text(result), remedy);
  }
  return owner;
}

Result<fid_mr*> MemoryCache::acquire(const plexus_net_region_t& region, const char* where) {
  const std::scoped_lock lock(mutex_);
  const Key key(region.data, region.size_bytes, region.kind);
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
  PLEXUS_DCHECK(found != entries_.end() && found->second.users > 0, registration);
  if (found != entries_.end() && --found->second.users == 0) {
    entries_.erase(found);
  }
}

size_t MemoryCache::size() const {
  const std::scoped_lock lock(mutex_);
  return entries_.size();
}

}  // namespace plexus::net_ofi
