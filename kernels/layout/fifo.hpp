// SPDX-License-Identifier: Apache-2.0
// The memory of a connection: a ring of `kSlots` slots from one sender to one receiver, in private
// or shared memory. kernels/layout/README.md is the specification of this layout.
//
// A slot header is one cache line: payload first, then `ready` with release order, so that a
// message of up to kInlineBytes costs one cache-line transfer. Larger payloads lie in the slot's
// data area, or stay in the sender's user buffer and only their address travels (kPointer,
// kMapped).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace plexus {

inline constexpr uint64_t kSlots = 8;
inline constexpr size_t kCacheLine = 64;
inline constexpr uint32_t kInlineBytes = 40;

/// Where a slot's payload is.
enum class SlotKind : uint32_t {
  kInline,   // in the header
  kData,     // in the slot's data area
  kPointer,  // at an address of the receiver's process, or of its device
  kMapped,   // in a shared memory segment of the sender (ncclMemAlloc)
};

/// No number to add to an address (kPointer between processes): those are even.
inline constexpr uint64_t kNotMapped = 1;

/// A place inside another process's shareable memory: enough to map it and to find the bytes.
struct MappedPlace {
  uint64_t segment;  // random id, also stored in the segment itself
  uint64_t segment_bytes;
  uint64_t offset;
  int32_t pid;
  int32_t fd;  // as numbered in `pid`
};

struct alignas(kCacheLine) SlotHeader {
  std::atomic<uint64_t> ready;  // step + 1 once filled; written last (release)
  uint32_t call_hash;           // hash of the call the sender makes: compared with the receiver's
  uint32_t size_bytes;
  SlotKind kind;
  uint32_t unused;
  union {
    std::byte bytes[kInlineBytes];
    const std::byte* pointer;
    MappedPlace place;
  } payload;
};
static_assert(sizeof(SlotHeader) == kCacheLine);
static_assert(sizeof(MappedPlace) <= kInlineBytes);

/// What a call was, for the sentence that names a mismatch.
struct CallRecord {
  uint64_t sequence;  // number of the call in its communicator
  uint64_t count;
  uint32_t hash;
  int32_t root;
  uint8_t collective;
  uint8_t type;
  uint8_t op;
  uint8_t algorithm;   // 1 + row of the table of algorithms; 0: none
  uint32_t of_vector;  // 1: a message of a collective with counts of its own per rank
};

/// A CallRecord in a Fifo. Who looks for one call's record among all reads others that are being
/// written; hence word by word. The record of a slot's own call is complete: it was written before
/// the slot's `ready`.
struct SharedCall {
  static constexpr size_t kWords = sizeof(CallRecord) / sizeof(uint64_t);
  std::atomic<uint64_t> words[kWords];

  void store(const CallRecord& record) noexcept {
    uint64_t values[kWords];
    std::memcpy(values, &record, sizeof(record));
    for (size_t i = 0; i < kWords; ++i) {
      words[i].store(values[i], std::memory_order_relaxed);
    }
  }
  [[nodiscard]] CallRecord load() const noexcept {
    uint64_t values[kWords];
    for (size_t i = 0; i < kWords; ++i) {
      values[i] = words[i].load(std::memory_order_relaxed);
    }
    CallRecord record{};
    std::memcpy(&record, values, sizeof(record));
    return record;
  }
};
static_assert(sizeof(SharedCall) == sizeof(CallRecord));

/// What one end tells the other about waiting. Written only when an end parks or sleeps, so that on
/// the fast path the other end's copy of the line stays valid.
struct alignas(kCacheLine) FifoEnd {
  std::atomic<uint32_t> engine;    // id of the engine that drives this end now; 0: not told
  std::atomic<uint32_t> waiter;    // 1 + index of the lane of that engine that waits here; 0: none
  std::atomic<uint32_t> sleeping;  // futex word: 1 while a thread sleeps until the other end moves
};

struct Fifo {
  alignas(kCacheLine) std::atomic<uint64_t> taken;  // steps released by the receiver
  FifoEnd sender;
  FifoEnd receiver;
  alignas(kCacheLine) SharedCall calls[kSlots];  // of call s at s mod kSlots; sender writes
  SlotHeader headers[kSlots];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace plexus
