// SPDX-License-Identifier: Apache-2.0
#include "core/transport/memory/user_memory.hpp"

#include <algorithm>
#include <limits>
#include <mutex>

#include <fmt/format.h>

#include "core/base/log.hpp"
#include "core/base/units.hpp"
#include "core/os/host.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

constexpr size_t kMappingsMax =
    64;  // per peer: a program that frees and allocates does not grow us

}  // namespace

Result<void*> UserMemory::allocate(size_t size_bytes) {
  // The system would give the addresses, and kill who uses them.
  if (const uint64_t most = memory_bytes(); most > 0 && size_bytes > most) {
    return fail(Code::kSystemError,
                "ncclMemAlloc of {} bytes: this host has {} bytes of memory and swap", size_bytes,
                most);
  }
  auto segment = SharedMemory::create(size_bytes);
  if (segment.has_error()) {  // such ranks use no memory of each other (core/setup/sharing)
    segment = SharedMemory::create_private(size_bytes);
  }
  if (segment.has_error()) {
    return std::move(segment).error().with_context(
        fmt::format("ncclMemAlloc of {} bytes", size_bytes));
  }
  auto* const address = segment.value().data();
  const std::unique_lock lock(mutex_);
  const bool is_new = segments_.emplace(address, std::move(segment).value()).second;
  PLEXUS_DCHECK(is_new, address);
  note_change();
  return static_cast<void*>(address);
}

Result<void*> UserMemory::allocate_on(DeviceRuntime& runtime, int device, const OnDevice& wish) {
  if (wish.size_bytes > std::numeric_limits<size_t>::max() - kExportGranule) {
    return fail(Code::kInvalidArgument, "ncclMemAlloc of {} bytes exceeds the address space",
                wish.size_bytes);
  }
  const size_t whole_bytes = align_up(std::max<size_t>(wish.size_bytes, 1), kExportGranule);
  DeviceMemory memory;
  if (wish.in_piece) {
    auto piece = allocate_piece(runtime, device, whole_bytes);
    if (piece.has_value()) {
      memory = std::move(piece).value();
    } else if (!explained_.exchange(true)) {
      PLEXUS_INFO(kAlloc, "ncclMemAlloc gives memory of cudaMalloc: {}", piece.error().message());
    }
  }
  if (memory == nullptr) {
    PLEXUS_TRY(plain, allocate_device(runtime, device, whole_bytes));
    memory = std::move(plain);
  }
  auto* const address = memory.get();
  const std::unique_lock lock(mutex_);
  const bool is_new = on_devices_.emplace(address, std::move(memory)).second;
  PLEXUS_DCHECK(is_new, address);
  return static_cast<void*>(address);
}

Result<void> UserMemory::release(void* pointer) {
  const std::unique_lock lock(mutex_);
  if (on_devices_.erase(static_cast<const std::byte*>(pointer)) != 0) {
    return ok();
  }
  const auto at = segments_.find(static_cast<const std::byte*>(pointer));
  if (at == segments_.end()) {
    return fail(Code::kInvalidArgument,
                "{} is not memory from ncclMemAlloc (or was freed already): pass the pointer that "
                "ncclMemAlloc returned",
                fmt::ptr(pointer));
  }
  segments_.erase(at);
  note_change();
  return ok();
}

Result<void*> UserMemory::map(const MappedPlace& place, uint64_t owner) {
  PLEXUS_TRY(memory, SharedMemory::open_peer({.pid = place.pid,
                                              .fd = place.fd,
                                              .size_bytes = place.segment_bytes,
                                              .id = place.segment,
                                              .owner = owner}));
  void* const first = memory.data();
  const std::unique_lock lock(mutex_);
  mapped_.emplace(first, std::move(memory));
  return first;
}

Result<void> UserMemory::unmap(void* memory) {
  const std::unique_lock lock(mutex_);
  if (mapped_.erase(memory) == 0) {
    return fail(Code::kInvalidArgument, "{} is no memory of another process that is mapped here",
                fmt::ptr(memory));
  }
  return ok();
}

MappedPlace UserMemory::find_place(const void* address, size_t size_bytes) const noexcept {
  const auto* const first = static_cast<const std::byte*>(address);
  const std::shared_lock lock(mutex_);
  auto at = segments_.upper_bound(first);
  if (at == segments_.begin()) {
    return {};
  }
  --at;
  const SharedMemory& segment = at->second;
  const auto offset = static_cast<size_t>(first - at->first);
  if (offset > segment.size() || size_bytes > segment.size() - offset) {
    return {};
  }
  return {.segment = segment.id(),
          .segment_bytes = segment.size(),
          .offset = offset,
          .pid = pid_.load(std::memory_order_relaxed),
          .fd = segment.fd()};
}

MappedPlace KnownPlaces::find_new(const void* address, size_t size_bytes) noexcept {
  const MappedPlace place = memory_->find_place(address, size_bytes);
  known_.at(next_) = {.address = address, .size_bytes = size_bytes, .place = place};
  next_ = (next_ + 1) % known_.size();
  return place;
}

std::byte* PeerSegments::find(const MappedPlace& place, uint64_t size_bytes) noexcept {
  const auto at =
      std::find_if(mappings_.begin(), mappings_.end(),
                   [&place](const Mapping& mapping) { return mapping.segment == place.segment; });
  const SharedMemory* const memory = at != mappings_.end() ? &at->memory : map(place);
  const bool is_inside = memory != nullptr && place.offset <= memory->size() &&
                         size_bytes <= memory->size() - place.offset;
  return is_inside ? memory->data() + place.offset : nullptr;
}

const SharedMemory* PeerSegments::map(const MappedPlace& place) noexcept {
  auto memory = SharedMemory::open_peer({.pid = place.pid,
                                         .fd = place.fd,
                                         .size_bytes = place.segment_bytes,
                                         .id = place.segment,
                                         .owner = process_});
  if (memory.has_error()) {
    PLEXUS_INFO(kShm, "{}", memory.error().message());
    return nullptr;
  }
  if (mappings_.size() == kMappingsMax) {
    mappings_.erase(mappings_.begin());
  }
  mappings_.push_back({place.segment, std::move(memory).value()});
  PLEXUS_DCHECK(mappings_.size() <= kMappingsMax, mappings_.size());
  return &mappings_.back().memory;
}

}  // namespace plexus
