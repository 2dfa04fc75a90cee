// SPDX-License-Identifier: Apache-2.0
// Memory from ncclMemAlloc: shared segments that the other processes of this host can map, so that
// they read a sender's user buffer without a copy through slots.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/base/fork.hpp"
#include "core/device/device_memory.hpp"
#include "core/os/shared_memory.hpp"
#include "kernels/host/connection.hpp"

namespace plexus {

/// All segments this process has allocated. One per process. Threads: any.
class UserMemory {
 public:
  UserMemory() = default;
  /// Made in the child of a fork from what its parent held for it: segments are mapped in both.
  UserMemory(AfterFork /*tag*/, UserMemory& parents) : segments_(std::move(parents.segments_)) {}
  /// Nothing changes from hold() to release(), which a child of a fork in between calls too.
  void hold() noexcept { mutex_.lock_shared(); }
  void release() noexcept { mutex_.unlock_shared(); }

  /// Page-aligned, zeroed. Size 0 is rounded up to a page.
  Result<void*> allocate(size_t size_bytes);
  struct OnDevice {
    size_t size_bytes;
    bool in_piece;  // DeviceRuntime::allocate_piece, where the driver can
  };
  /// On a device, for its ranks.
  Result<void*> allocate_on(DeviceRuntime& runtime, int device, const OnDevice& wish);
  /// kInvalidArgument when `pointer` is not from allocate().
  Result<void> release(void* pointer);
  /// Maps a segment of another process, or of this one once more; its first byte.
  Result<void*> map(const MappedPlace& place, uint64_t owner);
  /// kInvalidArgument when `memory` is not from map().
  Result<void> unmap(void* memory);
  /// Where [address, address + size) lies; segment 0 when it is not wholly inside one segment.
  [[nodiscard]] MappedPlace find_place(const void* address, size_t size_bytes) const noexcept;
  /// Places are in the calling process from now on: before the first communicator after a fork.
  void note_process() noexcept {
    pid_.store(getpid(), std::memory_order_relaxed);
    note_change();
  }
  /// Another number after each change of what find_place() gives.
  [[nodiscard]] uint64_t version() const noexcept {
    return version_.load(std::memory_order_acquire);  // pairs with note_change()
  }

 private:
  void note_change() noexcept { version_.fetch_add(1, std::memory_order_release); }

  std::atomic<uint64_t> version_{0};
  std::atomic<int32_t> pid_{getpid()};  // kept: asking the system takes longer than a small message
  std::atomic<bool> explained_{false};  // in the log, why devices give no pieces (cuMemCreate)
  mutable std::shared_mutex mutex_;
  std::map<const std::byte*, SharedMemory> segments_;    // key: address of the first user byte
  std::map<const std::byte*, DeviceMemory> on_devices_;  // likewise
  std::map<const void*, SharedMemory> mapped_;           // by map(), likewise
};

/// Remembers the places of the buffers that one thread uses, so that its calls take no lock.
class KnownPlaces {
 public:
  explicit KnownPlaces(const UserMemory* memory) : memory_(memory) {}
  /// As UserMemory::find_place().
  [[nodiscard]] MappedPlace find(const void* address, size_t size_bytes) noexcept {
    if (const uint64_t version = memory_->version(); version != version_) {
      version_ = version;
      known_ = {};
    }
    for (const Known& known : known_) {
      if (known.address == address && known.size_bytes == size_bytes) {
        return known.place;
      }
    }
    return find_new(address, size_bytes);
  }

 private:
  struct Known {
    const void* address = nullptr;
    size_t size_bytes = 0;
    MappedPlace place{};
  };
  [[nodiscard]] MappedPlace find_new(const void* address, size_t size_bytes) noexcept;

  const UserMemory* memory_;
  uint64_t version_ = 0;
  std::array<Known, 8> known_{};
  size_t next_ = 0;  // the one to be replaced
};

/// The segments of one peer that this process has mapped so far. Threads: one at a time.
class PeerSegments final : public PlaceResolver {
 public:
  /// `process`: the peer's process_id().
  explicit PeerSegments(uint64_t process) : process_(process) {}
  std::byte* find(const MappedPlace& place, uint64_t size_bytes) noexcept override;

 private:
  struct Mapping {
    uint64_t segment;
    SharedMemory memory;
  };
  /// nullptr: it cannot be mapped.
  const SharedMemory* map(const MappedPlace& place) noexcept;

  uint64_t process_;
  std::vector<Mapping> mappings_;  // oldest first, bounded
};

}  // namespace plexus
