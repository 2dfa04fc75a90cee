// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ib/memory.hpp"

#include <algorithm>
#include <cerrno>

#include "guest/assert.hpp"
#include "plugins/support/errno_text.hpp"

namespace plexus::net_ib {
namespace {

constexpr unsigned kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

const char* memory_text(uint32_t kind) {
  return kind == PLEXUS_MEMORY_HOST ? "host memory" : "GPU memory";
}

/// The likely cause of a refused registration.
const char* remedy_of_registration(uint32_t kind, int error) {
  if (kind != PLEXUS_MEMORY_HOST) {
    return "check that the driver lets the card access GPU memory (nvidia_peermem or dma-buf), or "
           "set PLEXUS_IB_GDR=0";
  }
  return error == ENOMEM ? "raise the limit of locked memory (ulimit -l)"
                         : "check that the memory is mapped and can be written";
}

}  // namespace

Result<MrPtr> MemoryCache::make(const plexus_net_region_t& region, const char* where) const {
  const unsigned access = orders_relaxed_ ? kAccess | IBV_ACCESS_RELAXED_ORDERING : kAccess;
  const auto address = reinterpret_cast<uintptr_t>(region.data);
  MrPtr made;
  if (region.kind != PLEXUS_MEMORY_DMABUF) {
    made.reset(verbs().reg_mr(pd_, region.data, region.size_bytes, address, access));
  } else if (verbs().reg_dmabuf_mr != nullptr) {
    made.reset(verbs().reg_dmabuf_mr(pd_, region.dmabuf_offset_bytes, region.size_bytes, address,
                                     region.dmabuf_fd, static_cast<int>(access)));
  } else {
    errno = EOPNOTSUPP;
  }
  if (made == nullptr) {
    const int error = errno;
    return fail(PLEXUS_SYSTEM_ERROR, "cannot register {} bytes of {} with {}: {}; {}",
                region.size_bytes, memory_text(region.kind), where, plugin::errno_text(error),
                remedy_of_registration(region.kind, error));
  }
  return made;
}

Result<ibv_mr*> MemoryCache::acquire(const plexus_net_region_t& region, const char* where) {
  const auto begin = reinterpret_cast<uintptr_t>(region.data);
  const uintptr_t end = begin + region.size_bytes;
  const std::scoped_lock lock(mutex_);
  auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& each) {
    return each.kind == region.kind && each.begin <= begin && end <= each.end;
  });
  if (found == entries_.end()) {
    PLEXUS_TRY(registration, make(region, where));
    entries_.push_back({begin, end, region.kind, std::move(registration), 0});
    found = std::prev(entries_.end());
  }
  ++found->users;
  return found->registration.get();
}

void MemoryCache::release(ibv_mr* registration) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& each) {
    return each.registration.get() == registration;
  });
  PLEXUS_DCHECK(found != entries_.end() && found->users > 0, registration);
  if (found != entries_.end() && --found->users == 0) {
    entries_.erase(found);
  }
}

Result<MrPtr> register_ordered(ibv_pd* pd, void* data, size_t size_bytes) {
  MrPtr made(verbs().reg_mr(pd, data, size_bytes, reinterpret_cast<uintptr_t>(data), kAccess));
  if (made == nullptr) {
    const int error = errno;
    return fail(PLEXUS_SYSTEM_ERROR, "cannot register {} bytes of the plugin's own memory: {}; {}",
                size_bytes, plugin::errno_text(error),
                remedy_of_registration(PLEXUS_MEMORY_HOST, error));
  }
  return made;
}

}  // namespace plexus::net_ib
