// SPDX-License-Identifier: Apache-2.0
// All memory that this process has from the CUDA runtime: which is on which device, of what kind,
// and how much of a device is left. The bytes are libplexus's (ncclMemAlloc), so that the ranks of
// other processes read them directly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "integrations/cudart/include/driver_types.h"

namespace plexus::cudart {

enum class MemoryKind { kDevice, kHost, kManaged, kRegistered, kIpc, kNccl };

struct Allocation {
  std::byte* data = nullptr;
  size_t size_bytes = 0;  // as the user wished
  MemoryKind kind = MemoryKind::kDevice;
  int device = 0;
  unsigned flags = 0;

  [[nodiscard]] bool is_host() const noexcept {
    return kind == MemoryKind::kHost || kind == MemoryKind::kRegistered;
  }
};

/// The calling thread's device (runtime.cpp).
int current_device() noexcept;

/// Threads: any.
class Memory {
 public:
  /// `checks`: freed memory is kept for a while, so that its use is found (PLEXUS_CHECK=1).
  Memory(size_t devices, uint64_t bytes_per_device, bool checks)
      : bytes_per_device_(bytes_per_device), checks_(checks), used_(devices, 0) {}

  /// cudaErrorMemoryAllocation: the device is full, or this machine. Size 0 gives nullptr.
  cudaError_t allocate(const Allocation& wish, void** memory);
  /// What begins at `memory` goes; cudaErrorInvalidValue unless it is of one of `kinds`.
  cudaError_t release(void* memory, std::initializer_list<MemoryKind> kinds);
  /// cudaErrorHostMemoryAlreadyRegistered if a part of it is known.
  cudaError_t add_host(const Allocation& allocation);
  /// Memory of another process, mapped again for each open of its handle; ends with close_ipc().
  cudaError_t open_ipc(const cudaIpcMemHandle_t& handle, int device, void** memory);
  cudaError_t close_ipc(void* memory);
  cudaError_t make_handle(const void* memory, cudaIpcMemHandle_t* handle);

  /// What `address` is in, memory from ncclMemAlloc too; nullopt: memory that is none of CUDA's.
  [[nodiscard]] std::optional<Allocation> find(const void* address) const;
  [[nodiscard]] uint64_t free_bytes(int device) const;
  [[nodiscard]] uint64_t total_bytes() const noexcept { return bytes_per_device_; }
  /// The most that any device held.
  [[nodiscard]] uint64_t peak_bytes() const;
  /// Frees what is on `device`.
  void reset(int device);

 private:
  /// Room for small allocations: one piece of libplexus's memory.
  struct Block {
    std::byte* data;
    int device;
    std::map<size_t, size_t> holes;  // offset -> size
    [[nodiscard]] bool is_used(size_t block_bytes) const {
      return holes.size() != 1 || holes.begin()->second != block_bytes;
    }
  };
  cudaError_t take(size_t size_bytes, int device, std::byte** data);
  void give_back(std::byte* data, size_t size_bytes);
  void let_go(std::byte* data, size_t size_bytes);
  [[nodiscard]] std::map<const std::byte*, Allocation>::const_iterator at(
      const void* address) const;

  const uint64_t bytes_per_device_;
  const bool checks_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, Allocation> known_;  // guarded by mutex_, as all below
  std::vector<uint64_t> used_;                    // [device]
  uint64_t peak_ = 0;
  std::vector<Block> blocks_;
  struct Opened {
    void* mapping;
    int count;
  };
  std::map<std::pair<uint64_t, uint64_t>, void*> by_handle_;  // segment and offset -> memory
  std::map<const void*, Opened> opened_;
};

}  // namespace plexus::cudart
