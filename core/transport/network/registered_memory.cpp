// SPDX-License-Identifier: Apache-2.0
#include "core/transport/network/registered_memory.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/log.hpp"
#include "guest/assert.hpp"

namespace plexus {

void RegisteredMemory::add(const void* address, size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  const bool is_known = std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    return range.begin == address && range.size_bytes == size_bytes;
  });
  if (!is_known) {
    ranges_.push_back({static_cast<const std::byte*>(address), size_bytes, {}});
  }
}

void RegisteredMemory::remove(const void* address) {
  const std::lock_guard lock(mutex_);
  std::erase_if(ranges_, [&](const Range& range) { return range.begin == address; });
}

/// nullptr: there is none.
RegisteredMemory::Range* RegisteredMemory::find_range(const std::byte* address, size_t size_bytes) {
  const auto found = std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    return range.begin <= address && size_bytes <= range.size_bytes &&
           static_cast<size_t>(address - range.begin) <= range.size_bytes - size_bytes;
  });
  if (found != ranges_.end()) {
    return &*found;
  }
  const MappedPlace place = allocated_->find_place(address, size_bytes);
  if (place.segment == 0) {
    return nullptr;
  }
  return &ranges_.emplace_back(Range{address - place.offset, place.segment_bytes, {}});
}

RegisteredMemory::Held RegisteredMemory::find(const void* owner,
                                              const std::byte* address,
                                              size_t size_bytes,
                                              const Register& add) {
  const std::lock_guard lock(mutex_);
  Range* const range = find_range(address, size_bytes);
  if (range == nullptr) {
    return nullptr;
  }
  PLEXUS_DCHECK(range->begin <= address && address + size_bytes <= range->begin + range->size_bytes,
                address, size_bytes, range->begin, range->size_bytes);
  const auto [at, is_new] = range->held.try_emplace(owner);
  if (is_new) {
    // The plugin only reads.
    auto* const begin =
        const_cast<std::byte*>(range->begin);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    auto made = add({.data = begin,
                     .size_bytes = range->size_bytes,
                     .dmabuf_offset_bytes = 0,
                     .dmabuf_fd = -1,
                     .kind = PLEXUS_MEMORY_HOST});
    if (made.has_value()) {
      at->second = std::make_shared<NetMemory>(std::move(made).value());
    } else {
      PLEXUS_INFO(kNet, "what is sent from the {} registered bytes at {} is copied: {}",
                  range->size_bytes, fmt::ptr(range->begin), made.error().message());
    }
  }
  return at->second;
}

void RegisteredMemory::forget(const void* owner) {
  const std::lock_guard lock(mutex_);
  for (Range& range : ranges_) {
    if (const auto at = range.held.find(owner); at != range.held.end()) {
      PLEXUS_DCHECK(at->second == nullptr || at->second.use_count() == 1, at->second.use_count());
      range.held.erase(at);
    }
  }
}

}  // namespace plexus
