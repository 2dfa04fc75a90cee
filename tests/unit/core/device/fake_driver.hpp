// SPDX-License-Identifier: Apache-2.0
// The part of CUDA's driver that is about memory of cuMemCreate, over memfds, as its manual has it:
// handles are counted, a mapping keeps its memory, addresses have no access at first, and what is
// given back must be whole. It replaces the runtime's way to look functions up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda.h>
#include <map>

namespace plexus {

/// One per process, as the driver.
struct FakeDriver {
  static constexpr size_t kGranule = size_t{2} << 20;
  struct Memory {
    int fd;
    size_t size_bytes;
    CUmemAllocationProp facts;
    int handles = 1;
    int mappings = 0;
  };
  struct Mapping {
    size_t size_bytes;
    CUmemGenericAllocationHandle memory;
    std::map<int, bool> readers = {};
  };

  static FakeDriver& instance();
  /// As a program does it: maps so many new pieces of a granule side by side at `base`, 0:
  /// anywhere.
  static void* map_pieces(size_t count, CUmemAllocationHandleType type, void* base = nullptr);
  /// Its addresses stay reserved for the next call of map_pieces().
  static void unmap_pieces(void* base, size_t count);
  static void free_range(void* base, size_t count);
  /// Whether everything was given back.
  [[nodiscard]] bool is_empty() const {
    return memories.empty() && mappings.empty() && reserved.empty();
  }

  std::map<CUmemGenericAllocationHandle, Memory> memories;
  std::map<CUdeviceptr, Mapping> mappings;
  std::map<CUdeviceptr, size_t> reserved;
  int calls_until_failure = -1;  // of those that may fail; -1: none does
  bool was_misused = false;      // a call had what the manual forbids
};

}  // namespace plexus
