// SPDX-License-Identifier: Apache-2.0
// Where the parts of a connection's memory lie: the Fifo, the lines of its slots (LL, then LL128),
// then their data areas. Both ends compute the same places from the slot size.
#pragma once

#include <cstddef>
#include <new>

#include "core/base/units.hpp"
#include "core/transport/connection.hpp"
#include "kernels/layout/fifo.hpp"
#include "kernels/layout/protocol.hpp"

namespace plexus {

inline constexpr size_t kFifoBytes = align_up(sizeof(Fifo), size_t{4096});

inline constexpr size_t kLinesBytes =
    align_up(kSlots * (kSlotBytesLL + kSlotBytesLL128), size_t{4096});

constexpr size_t fifo_memory_bytes(size_t slot_stride) {
  return kFifoBytes + kLinesBytes + kSlots * slot_stride;
}

/// Fifos start as zero bytes (fresh mappings): all counters 0 means empty.
inline Fifo* fifo_at(std::byte* memory) { return std::launder(reinterpret_cast<Fifo*>(memory)); }
inline std::byte* lines_at(std::byte* memory) { return memory + kFifoBytes; }
inline std::byte* slots_at(std::byte* memory) { return memory + kFifoBytes + kLinesBytes; }

/// The same for kernels, which see the memory at `memory`.
inline DeviceView view_for_devices(std::byte* memory, size_t slot_stride, Reach reach) {
  return {.fifo = memory,
          .lines = lines_at(memory),
          .slots = slots_at(memory),
          .slot_stride = slot_stride,
          .reach = reach};
}

}  // namespace plexus
