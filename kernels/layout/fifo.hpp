// SPDX-License-Identifier: Apache-2.0
// The memory of a connection: a ring of messages from one sender to one receiver, in private or
// shared memory. kernels/layout/README.md specifies this layout.
//
// A message's header is one cache line. The payload is written first, then `ready` with release
// order, so that a message of up to kInlineBytes takes one cache-line transfer. Larger payloads are
// beside the headers, up to kSmallBytes, in one of `kSlots` data areas, or stay in the sender's
// user buffer and only their address is sent (kPointer, kMapped, kAttached).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/layout/macros.hpp"

namespace plexus {

/// How far a sender may be ahead of its receiver, in messages: with payloads of more than
/// kSmallBytes, and with smaller ones.
inline constexpr uint64_t kSlots = 8;
inline constexpr uint64_t kHeaders = 128;
inline constexpr size_t kCacheLine = 64;
inline constexpr uint32_t kInlineBytes = 40;
inline constexpr uint32_t kSmallBytes = 512;

/// The location of a slot's payload.
enum class SlotKind : uint32_t {
  kInline,    // in the header
  kSmall,     // at the header's place among the small payloads
  kData,      // in the slot's data area
  kPointer,   // at an address valid in the receiver's process or on its device
  kMapped,    // in a shared memory segment of the sender (ncclMemAlloc)
  kAttached,  // at an address of the sender's process, which the receiver reads by system calls
};

/// Where Fifo::calls has the record of the call with this number: SlotHeader::call.
PLEXUS_HOST_DEVICE constexpr uint32_t record_of_call(uint64_t sequence) noexcept {
  return static_cast<uint32_t>(sequence % kHeaders);
}

/// Marks "not mapped" among the offsets between processes (kPointer), which are even.
inline constexpr uint64_t kNotMapped = 1;

/// A place in another process's shareable memory: enough to map it and find the bytes.
struct MappedPlace {
  uint64_t segment;  // random id that the segment contains as well
  uint64_t segment_bytes;
  uint64_t offset;
  int32_t pid;
  int32_t fd;  // as numbered in `pid`
  friend bool operator==(const MappedPlace&, const MappedPlace&) = default;
};

struct alignas(kCacheLine) SlotHeader {
  std::atomic<uint64_t> ready;  // step + 1 once filled; written last (release)
  uint32_t call_hash;           // hash of the sender's call; the receiver compares it with its own
  uint32_t size_bytes;
  SlotKind kind;
  uint32_t call;  // index of the call's record in Fifo::calls
  union {
    std::byte bytes[kInlineBytes];
    const std::byte* pointer;
    MappedPlace place;
    uint64_t address;
  } payload;
};
static_assert(sizeof(SlotHeader) == kCacheLine);
static_assert(sizeof(MappedPlace) <= kInlineBytes);

/// A call, for the error message that names a mismatch.
struct CallRecord {
  uint64_t sequence;  // number of the call in its communicator
  uint64_t count;
  uint32_t hash;
  int32_t root;
  uint8_t collective;
  uint8_t type;
  uint8_t op;
  uint8_t algorithm;      // 1 + row in the table of algorithms; 0: none of it
  uint16_t of_vector;     // 1: a message of a collective with counts per rank
  uint16_t has_checksum;  // 1: over networks its messages carry sums
};

/// A CallRecord in a Fifo. A reader that searches for one call's record reads all of them,
/// including those being written; hence word by word. The record of a slot's own call is complete,
/// because it was written before the slot's `ready`.
struct SharedCall {
  static constexpr size_t kWords = sizeof(CallRecord) / sizeof(uint64_t);
  std::atomic<uint64_t> words[kWords];

  /// Every call does this, just after its number and hash were stored: a word is read in the sizes
  /// in which it was written, because the processor cannot forward a part of it otherwise.
  void store(const CallRecord& record) noexcept {
    constexpr unsigned kHalfBits = 32;
    uint64_t kinds = 0;
    const auto* const bytes = reinterpret_cast<const std::byte*>(&record);
    std::memcpy(&kinds, bytes + offsetof(CallRecord, collective), sizeof(kinds));
    words[0].store(record.sequence, std::memory_order_relaxed);
    words[1].store(record.count, std::memory_order_relaxed);
    words[2].store(record.hash | uint64_t{static_cast<uint32_t>(record.root)} << kHalfBits,
                   std::memory_order_relaxed);
    words[3].store(kinds, std::memory_order_relaxed);
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
static_assert(sizeof(SharedCall) == sizeof(CallRecord) && SharedCall::kWords == 4);
static_assert(offsetof(CallRecord, hash) == 16 && offsetof(CallRecord, root) == 20 &&
              offsetof(CallRecord, collective) == 24);

/// Waiting state of one end for the other end to see. Written only when an end parks or sleeps, so
/// that the other end's cached copy stays valid on the fast path.
struct alignas(kCacheLine) FifoEnd {
  std::atomic<uint32_t> engine;    // id of the engine that drives this end; 0: none
  std::atomic<uint32_t> waiter;    // 1 + index of that engine's lane that waits here; 0: none
  std::atomic<uint32_t> sleeping;  // futex word: 1 while a thread sleeps here
  std::atomic<uint32_t> revoked;   // the sender's: 1: its call failed, its addresses are void
};

/// The receiver's output, for a sender that can write there: it stores what it has computed in the
/// receiver's place, and sends the address (kPointer) when it is done. It does so with results that
/// contain what the receiver sent in the same call, and so sees the output of that call. Written
/// only when it changes, so that it stays in both caches.
struct alignas(kCacheLine) WritableOutput {
  std::atomic<uint64_t> size_bytes;  // 0: not to be written, or not any more
  std::byte* address;                // in the receiver's process
  MappedPlace place;                 // segment 0: other processes cannot map it
};
static_assert(sizeof(WritableOutput) == kCacheLine);

struct Fifo {
  // number of steps that the receiver has released
  alignas(kCacheLine) std::atomic<uint64_t> taken;
  FifoEnd sender;
  FifoEnd receiver;
  WritableOutput output;                             // the receiver writes
  alignas(kCacheLine) std::atomic<uint32_t> writes;  // 1 while the sender writes to `output`
  alignas(kCacheLine) SharedCall calls[kHeaders];  // call s is at s mod kHeaders; the sender writes
  SlotHeader headers[kHeaders];
  alignas(kCacheLine) std::byte small[kHeaders][kSmallBytes];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace plexus
