// SPDX-License-Identifier: Apache-2.0
#include "integrations/cudart/memory.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <nccl.h>
#include <utility>

#include "core/base/units.hpp"
#include "core/device/virtual_devices.h"
#include "integrations/cudart/call.hpp"
#include "integrations/cudart/runtime.hpp"

namespace plexus::cudart {
namespace {

constexpr size_t kAlignment = 512;  // cudaMalloc's
constexpr size_t kBlockBytes = 2_MiB;
constexpr size_t kSmallMax = 256_KiB;  // larger ones are pieces of libplexus's memory of their own
constexpr uint64_t kHandleMagic = 0x504c584950433031;  // "PLXIPC01"

/// What a cudaIpcMemHandle_t holds.
struct Handle {
  uint64_t magic;
  plexusMemoryPlace place;
  uint64_t size_bytes;
};
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t));

const char* name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kDevice:
      return "memory of a device";
    case MemoryKind::kHost:
      return "pinned host memory";
    case MemoryKind::kManaged:
      return "managed memory";
    case MemoryKind::kRegistered:
      return "registered host memory";
    case MemoryKind::kIpc:
      return "memory of another process";
    case MemoryKind::kNccl:
      return "memory from ncclMemAlloc";
  }
  return "memory";
}

bool is_counted(MemoryKind kind) {
  return kind == MemoryKind::kDevice || kind == MemoryKind::kManaged;
}

}  // namespace

cudaError_t Memory::take(size_t size_bytes, int device, std::byte** data) {
  if (size_bytes > kSmallMax) {
    void* memory = nullptr;
    if (plexusAllocateMemory(&memory, size_bytes) != ncclSuccess) {
      return cudaErrorMemoryAllocation;
    }
    *data = static_cast<std::byte*>(memory);
    return cudaSuccess;
  }
  for (Block& block : blocks_) {
    const auto hole = std::find_if(block.holes.begin(), block.holes.end(),
                                   [&](const auto& each) { return each.second >= size_bytes; });
    if (block.device == device && hole != block.holes.end()) {
      const auto [offset, room] = *hole;
      block.holes.erase(hole);
      if (room > size_bytes) {
        block.holes.emplace(offset + size_bytes, room - size_bytes);
      }
      *data = block.data + offset;
      return cudaSuccess;
    }
  }
  void* memory = nullptr;
  if (plexusAllocateMemory(&memory, kBlockBytes) != ncclSuccess) {
    return cudaErrorMemoryAllocation;
  }
  blocks_.push_back({.data = static_cast<std::byte*>(memory), .device = device, .holes = {}});
  blocks_.back().holes.emplace(size_bytes, kBlockBytes - size_bytes);
  *data = blocks_.back().data;
  return cudaSuccess;
}

void Memory::give_back(std::byte* data, size_t size_bytes) {
  const auto block = std::find_if(blocks_.begin(), blocks_.end(), [data](const Block& each) {
    return data >= each.data && data < each.data + kBlockBytes;
  });
  if (block == blocks_.end()) {
    static_cast<void>(plexusFreeMemory(data));
    return;
  }
  auto& holes = block->holes;
  auto at = holes.emplace(static_cast<size_t>(data - block->data), size_bytes).first;
  if (const auto next = std::next(at);
      next != holes.end() && at->first + at->second == next->first) {
    at->second += next->second;
    holes.erase(next);
  }
  if (at != holes.begin()) {
    const auto before = std::prev(at);
    if (before->first + before->second == at->first) {
      before->second += at->second;
      holes.erase(at);
    }
  }
  if (!block->is_used(kBlockBytes)) {
    static_cast<void>(plexusFreeMemory(block->data));
    blocks_.erase(block);
  }
}

cudaError_t Memory::allocate(const Allocation& wish, void** memory) {
  *memory = nullptr;
  if (wish.size_bytes == 0) {
    return cudaSuccess;
  }
  if (wish.size_bytes > bytes_per_device_ && is_counted(wish.kind)) {
    return refuse(
        cudaErrorMemoryAllocation,
        "{} bytes do not fit into device {}, which has {}: PLEXUS_CUDART_MEMORY sets that",
        wish.size_bytes, wish.device, bytes_per_device_);
  }
  const size_t room = align_up(wish.size_bytes, kAlignment);
  std::unique_lock lock(mutex_);
  uint64_t& used = used_.at(static_cast<size_t>(wish.device));
  if (is_counted(wish.kind) && room > bytes_per_device_ - used) {
    return refuse(cudaErrorMemoryAllocation,
                  "device {} is full: {} bytes of {} are free; PLEXUS_CUDART_MEMORY sets how much "
                  "there is",
                  wish.device, bytes_per_device_ - used, bytes_per_device_);
  }
  Allocation made = wish;
  PLEXUS_CUDART_TRY(take(room, wish.device, &made.data));
  known_.emplace(made.data, made);
  if (is_counted(wish.kind)) {
    used += room;
    peak_ = std::max(peak_, used);
  }
  *memory = made.data;
  lock.unlock();
  if (checks_) {
    plexusNoteNew(made.data, made.size_bytes);
  }
  return cudaSuccess;
}

/// What begins at `data` is in no table any more.
void Memory::let_go(std::byte* data, size_t size_bytes) {
  const auto release = [](void* kept, size_t kept_bytes) {
    Memory& memory = Runtime::instance().memory;
    const std::lock_guard lock(memory.mutex_);
    memory.give_back(static_cast<std::byte*>(kept), kept_bytes);
  };
  if (!checks_ || plexusKeepFreed(data, size_bytes, release) == 0) {
    release(data, size_bytes);
  }
}

std::map<const std::byte*, Allocation>::const_iterator Memory::at(const void* address) const {
  const auto* const byte = static_cast<const std::byte*>(address);
  auto found = known_.upper_bound(byte);
  if (found == known_.begin()) {
    return known_.end();
  }
  --found;
  return byte < found->first + found->second.size_bytes ? found : known_.end();
}

cudaError_t Memory::release(void* memory, std::initializer_list<MemoryKind> kinds) {
  std::unique_lock lock(mutex_);
  const auto found = at(memory);
  if (found == known_.end()) {
    return refuse(cudaErrorInvalidValue,
                  "{} is no memory of the CUDA runtime, or was freed already", fmt::ptr(memory));
  }
  const Allocation allocation = found->second;
  if (allocation.data != memory) {
    return refuse(cudaErrorInvalidValue,
                  "{} is {} bytes inside of an allocation: pass its start, {}", fmt::ptr(memory),
                  static_cast<const std::byte*>(memory) - allocation.data,
                  fmt::ptr(allocation.data));
  }
  if (std::find(kinds.begin(), kinds.end(), allocation.kind) == kinds.end()) {
    return refuse(cudaErrorInvalidValue, "{} is {}, which another function frees", fmt::ptr(memory),
                  name_of(allocation.kind));
  }
  const size_t room = align_up(allocation.size_bytes, kAlignment);
  known_.erase(found);
  if (is_counted(allocation.kind)) {
    used_.at(static_cast<size_t>(allocation.device)) -= room;
  }
  lock.unlock();
  if (allocation.kind != MemoryKind::kRegistered) {
    let_go(allocation.data, room);
  }
  return cudaSuccess;
}

cudaError_t Memory::add_host(const Allocation& allocation) {
  const std::lock_guard lock(mutex_);
  const auto next = known_.lower_bound(allocation.data);
  const bool overlaps =
      at(allocation.data) != known_.end() ||
      (next != known_.end() && next->first < allocation.data + allocation.size_bytes);
  if (overlaps) {
    return refuse(cudaErrorHostMemoryAlreadyRegistered,
                  "a part of the {} bytes at {} is registered or allocated by CUDA already",
                  allocation.size_bytes, fmt::ptr(allocation.data));
  }
  known_.emplace(allocation.data, allocation);
  return cudaSuccess;
}

cudaError_t Memory::make_handle(const void* memory, cudaIpcMemHandle_t* handle) {
  const auto allocation = find(memory);
  const bool is_device = allocation.has_value() && (allocation->kind == MemoryKind::kDevice ||
                                                    allocation->kind == MemoryKind::kNccl);
  if (!is_device) {
    return refuse(cudaErrorInvalidValue, "{} is no memory of a device of this process",
                  fmt::ptr(memory));
  }
  Handle made{.magic = kHandleMagic, .place = {}, .size_bytes = allocation->size_bytes};
  plexusFindMemory(allocation->data, &made.place);
  if (made.place.segment == 0) {
    return refuse(cudaErrorNotSupported, "this system does not let processes share memory");
  }
  *handle = {};
  std::memcpy(handle, &made, sizeof(made));
  return cudaSuccess;
}

cudaError_t Memory::open_ipc(const cudaIpcMemHandle_t& handle, int device, void** memory) {
  Handle wish{};
  std::memcpy(&wish, &handle, sizeof(wish));
  const plexusMemoryPlace& place = wish.place;
  const bool is_ours = wish.magic == kHandleMagic && place.segment != 0 &&
                       place.offset <= place.segment_bytes &&
                       wish.size_bytes <= place.segment_bytes - place.offset;
  if (!is_ours) {
    return refuse(cudaErrorInvalidResourceHandle,
                  "this is no handle that cudaIpcGetMemHandle of this library made");
  }
  const std::lock_guard lock(mutex_);
  const std::pair<uint64_t, uint64_t> key{place.segment, place.offset};
  if (const auto known = by_handle_.find(key); known != by_handle_.end()) {
    ++opened_.at(known->second).count;
    *memory = known->second;
    return cudaSuccess;
  }
  void* mapping = nullptr;
  if (plexusMapMemory(&place, &mapping) != ncclSuccess) {
    return cudaErrorMapBufferObjectFailed;
  }
  auto* const data = static_cast<std::byte*>(mapping) + place.offset;
  by_handle_.emplace(key, data);
  opened_.emplace(data, Opened{.mapping = mapping, .count = 1});
  known_.emplace(
      data,
      Allocation{
          .data = data, .size_bytes = wish.size_bytes, .kind = MemoryKind::kIpc, .device = device});
  *memory = data;
  return cudaSuccess;
}

cudaError_t Memory::close_ipc(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = opened_.find(memory);
  if (found == opened_.end()) {
    return refuse(cudaErrorInvalidValue, "{} is no memory from cudaIpcOpenMemHandle",
                  fmt::ptr(memory));
  }
  if (--found->second.count > 0) {
    return cudaSuccess;
  }
  static_cast<void>(plexusUnmapMemory(found->second.mapping));
  opened_.erase(found);
  known_.erase(static_cast<const std::byte*>(memory));
  std::erase_if(by_handle_, [memory](const auto& each) { return each.second == memory; });
  return cudaSuccess;
}

std::optional<Allocation> Memory::find(const void* address) const {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = at(address); found != known_.end()) {
      return found->second;
    }
  }
  plexusMemoryPlace place{};
  plexusFindMemory(address, &place);
  if (place.segment_bytes == 0) {
    return std::nullopt;
  }
  // NOLINTNEXTLINE(*-const-cast): describes memory that the user may write
  auto* const byte = static_cast<std::byte*>(const_cast<void*>(address));
  return Allocation{.data = byte - place.offset,
                    .size_bytes = place.segment_bytes,
                    .kind = MemoryKind::kNccl,
                    .device = current_device()};
}

uint64_t Memory::free_bytes(int device) const {
  const std::lock_guard lock(mutex_);
  return bytes_per_device_ - used_.at(static_cast<size_t>(device));
}

uint64_t Memory::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void Memory::reset(int device) {
  const std::lock_guard lock(mutex_);
  for (auto each = known_.begin(); each != known_.end();) {
    const Allocation allocation = each->second;
    if (allocation.device != device || !is_counted(allocation.kind)) {
      ++each;
      continue;
    }
    each = known_.erase(each);
    give_back(allocation.data, align_up(allocation.size_bytes, kAlignment));
  }
  used_.at(static_cast<size_t>(device)) = 0;
}

}  // namespace plexus::cudart
