// SPDX-License-Identifier: Apache-2.0
// The two ends of a connection as the executor uses them: thin views of a Fifo that a transport of
// core/transport owns. No function blocks, allocates or makes a system call, except to wake a
// thread that sleeps at the other end.
//
// Threads: each end is used by one thread at a time (the engine that drives its rank).
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "guest/assert.hpp"
#include "kernels/host/lines.hpp"
#include "kernels/host/outside.hpp"
#include "kernels/layout/fifo.hpp"

namespace plexus {

/// Fetches a cache line together with the right to write it, where the processor knows how. The
/// compiler's builtin would do so only on processors that all have the instruction.
inline void prefetch_to_write(const void* line) noexcept {
  asm volatile("prefetchw %0" : : "m"(*static_cast<const std::byte*>(line)));
}

/// Address of the lines of slot `step`: all slots of LL come first, then all of LL128.
inline std::byte* lines_of_slot(Protocol protocol, std::byte* lines, uint64_t step) noexcept {
  return protocol == Protocol::kLL
             ? lines + (step % kSlots) * kSlotBytesLL
             : lines + kSlots * kSlotBytesLL + (step % kSlots) * kSlotBytesLL128;
}

/// Finds the bytes of a peer's shareable memory in this process; maps the memory on first use.
class PlaceResolver {
 public:
  virtual ~PlaceResolver() = default;
  /// nullptr: mapping failed (the implementation logs the reason), or the segment has fewer bytes.
  virtual std::byte* find(const MappedPlace& place, uint64_t size_bytes) noexcept = 0;
};

/// Reads the sender's memory, in another process (cross-memory attach).
class PeerReader {
 public:
  virtual ~PeerReader() = default;
  /// Copies `size_bytes` at the peer's `address`. 0, or why not, as errno.
  [[nodiscard]] virtual int read(std::byte* target,
                                 uint64_t address,
                                 size_t size_bytes) const noexcept = 0;
};

/// The part of a peer's user memory that is used in place: read by the receiver, and what the
/// receiver stores, written by the sender.
enum class Reach : uint8_t {
  kNothing,
  kMapped,   // memory from ncclMemAlloc, through a mapping
  kProcess,  // all memory: same process
};

class SendConnection {
  // The most bytes of a small payload, whose lines are fetched before they are written. More lines
  // than two gain nothing: the stores that wait for them overlap.
  static constexpr uint32_t kFetchedBytesMax = 2 * kCacheLine;

 public:
  struct Options {
    int peer = -1;
    Reach reach = Reach::kNothing;
    bool attaches = false;  // the receiver has a PeerReader
    // 0: the payload is always in the data area, for a pump that sends it on
    uint32_t inline_bytes_max = kInlineBytes;
    size_t slot_stride = 0;           // bytes from one slot's data to the next
    std::byte* lines = nullptr;       // lines of all slots; nullptr: LL and LL128 are not possible
    PlaceResolver* places = nullptr;  // of the receiver's memory, where the reach is kMapped
  };
  /// Starts at the step where `fifo` is.
  SendConnection(Fifo* fifo, std::byte* data, const Options& options)
      : fifo_(fifo),
        data_(data),
        options_(options),
        step_(fifo == nullptr ? 0 : fifo->taken.load(std::memory_order_acquire)),
        taken_(step_) {}

  /// Whether there is a Fifo behind it.
  [[nodiscard]] bool connected() const noexcept { return fifo_ != nullptr; }
  [[nodiscard]] int peer() const noexcept { return options_.peer; }
  /// Number of messages that were handed over.
  [[nodiscard]] uint64_t sent() const noexcept { return step_; }
  [[nodiscard]] bool has_lines() const noexcept { return options_.lines != nullptr; }
  [[nodiscard]] Reach reach() const noexcept { return options_.reach; }
  /// A pump takes what is sent, and sends it on.
  [[nodiscard]] bool is_pumped() const noexcept { return options_.inline_bytes_max == 0; }
  /// Whether commit_address() is possible.
  [[nodiscard]] bool attaches() const noexcept { return options_.attaches; }
  [[nodiscard]] Fifo& fifo() noexcept { return *fifo_; }

  /// Whether the next message can be written: one of `size_bytes` through a slot, or any.
  [[nodiscard]] bool try_acquire(uint32_t size_bytes) noexcept {
    return try_acquire_within(most_ahead(size_bytes));
  }
  [[nodiscard]] bool try_acquire() noexcept { return try_acquire_within(kSlots); }

  /// Address for `size_bytes` of payload of the next slot.
  [[nodiscard]] std::byte* payload(uint32_t size_bytes) noexcept {
    PLEXUS_DCHECK(connected());
    PLEXUS_DCHECK(step_ - taken_ < most_ahead(size_bytes), step_, taken_, size_bytes);
    switch (kind_of(size_bytes)) {
      case SlotKind::kInline:
        return header().payload.bytes;
      case SlotKind::kSmall:
        fetch_next_small(size_bytes);
        return fifo_->small[step_ % kHeaders];
      default:
        PLEXUS_DCHECK(size_bytes <= options_.slot_stride, size_bytes, options_.slot_stride);
        return data_ + (step_ % kSlots) * options_.slot_stride;
    }
  }

  /// Publishes the slot whose payload() was written.
  void commit(uint32_t size_bytes, uint32_t call_hash) noexcept {
    header().kind = kind_of(size_bytes);
    publish(size_bytes, call_hash);
  }

  /// Writes and publishes the slot's lines.
  void commit_lines(Protocol protocol,
                    const std::byte* bytes,
                    uint32_t size_bytes,
                    uint32_t call_hash) noexcept {
    PLEXUS_DCHECK(has_lines());
    PLEXUS_DCHECK(step_ - taken_ < kSlots, step_, taken_);
    PLEXUS_DCHECK(size_bytes <= payload_bytes_max(protocol), size_bytes, protocol);
    if (needs_cleaning(step_, kSlots)) {
      clean();
    }
    if (options_.reach != Reach::kProcess) {
      note_sent_outside();
    }
    write_lines(protocol, lines_of_slot(protocol, options_.lines, step_), bytes, size_bytes,
                call_hash, flag_of_step(step_));
    ++step_;
  }

  /// Publishes the address instead of the bytes, which must not change before all_taken().
  void commit_pointer(const std::byte* bytes, uint32_t size_bytes, uint32_t call_hash) noexcept {
    PLEXUS_DCHECK(bytes != nullptr || size_bytes == 0, size_bytes);
    header().kind = SlotKind::kPointer;
    header().payload.pointer = bytes;
    publish(size_bytes, call_hash);
    borrowed_until_ = step_;
  }
  void commit_address(const std::byte* bytes, uint32_t size_bytes, uint32_t call_hash) noexcept {
    PLEXUS_DCHECK(attaches());
    header().kind = SlotKind::kAttached;
    header().payload.address = reinterpret_cast<uintptr_t>(bytes);
    publish(size_bytes, call_hash);
    borrowed_until_ = step_;
  }
  void commit_place(const MappedPlace& place, uint32_t size_bytes, uint32_t call_hash) noexcept {
    PLEXUS_DCHECK(place.segment != 0 && place.offset + size_bytes <= place.segment_bytes,
                  place.offset, size_bytes, place.segment_bytes);
    header().kind = SlotKind::kMapped;
    header().payload.place = place;
    publish(size_bytes, call_hash);
    borrowed_until_ = step_;
  }

  /// The place in this process of a part of the receiver's output, to be written and followed by
  /// commit_written(). nullptr: it is not within reach, or the receiver's call has failed. Requires
  /// that the receiver has sent something in this call.
  [[nodiscard]] std::byte* try_begin_write(uint64_t offset, uint32_t size_bytes) noexcept {
    if (options_.reach == Reach::kNothing) {
      return nullptr;
    }
    const WritableOutput& output = fifo_->output;
    const uint64_t output_bytes = output.size_bytes.load(std::memory_order_relaxed);
    if (offset > output_bytes || size_bytes > output_bytes - offset) {
      return nullptr;
    }
    std::byte* place = nullptr;
    if (options_.reach == Reach::kProcess) {
      place = output.address + offset;
    } else if (output.place.segment != 0 && options_.places != nullptr) {
      MappedPlace mapped = output.place;
      mapped.offset += offset;
      place = options_.places->find(mapped, size_bytes);
    }
    if (place == nullptr) {
      return nullptr;
    }
    // A receiver that fails closes its output, then looks at `writes`.
    fifo_->writes.exchange(1, std::memory_order_seq_cst);
    if (output.size_bytes.load(std::memory_order_seq_cst) == 0) {
      fifo_->writes.store(0, std::memory_order_release);
      return nullptr;
    }
    return place;
  }
  /// Publishes what was written there.
  void commit_written(uint64_t offset, uint32_t size_bytes, uint32_t call_hash) noexcept {
    PLEXUS_DCHECK(fifo_->writes.load(std::memory_order_relaxed) == 1);
    header().kind = SlotKind::kPointer;
    header().payload.pointer = fifo_->output.address + offset;
    fifo_->writes.store(0, std::memory_order_release);  // pairs with is_written()
    publish(size_bytes, call_hash);
    // The receiver sends a result at about the same time, and has taken what that is made of.
    __builtin_prefetch(&fifo_->taken);
  }
  /// Soon try_begin_write() follows.
  void prefetch_output() const noexcept { __builtin_prefetch(&fifo_->output); }

  /// Whether the receiver has taken every slot whose bytes are in user memory.
  [[nodiscard]] bool all_taken() noexcept {
    if (borrowed_until_ <= taken_) {
      return true;
    }
    taken_ = fifo_->taken.load(std::memory_order_acquire);  // pairs with release()
    return borrowed_until_ <= taken_;
  }

  /// The call has failed: what the receiver has not taken must not be used any more.
  void revoke() noexcept {
    if (!all_taken()) {
      fifo_->sender.revoked.store(1, std::memory_order_release);
      std::atomic_thread_fence(std::memory_order_seq_cst);  // before the user's next store
    }
  }

  /// Sets the call that the next slots belong to.
  void begin_call(const CallRecord& record) noexcept {
    PLEXUS_DCHECK(connected());
    call_ = record_of_call(record.sequence);
    fifo_->calls[call_].store(record);
  }

 private:
  [[nodiscard]] bool try_acquire_within(uint64_t most_ahead) noexcept {
    if (step_ - taken_ < most_ahead) {
      return true;
    }
    taken_ = fifo_->taken.load(std::memory_order_acquire);  // pairs with release()
    PLEXUS_DCHECK(taken_ <= step_, taken_, step_);
    return step_ - taken_ < most_ahead;
  }
  /// How many messages of this size the sender may be ahead.
  [[nodiscard]] uint64_t most_ahead(uint32_t size_bytes) const noexcept {
    return kind_of(size_bytes) == SlotKind::kData ? kSlots : kHeaders;
  }
  /// Where the payload goes when its bytes are sent.
  [[nodiscard]] SlotKind kind_of(uint32_t size_bytes) const noexcept {
    if (size_bytes > kSmallBytes || options_.inline_bytes_max == 0) {
      return SlotKind::kData;
    }
    return size_bytes <= options_.inline_bytes_max ? SlotKind::kInline : SlotKind::kSmall;
  }
  [[nodiscard]] SlotHeader& header() noexcept { return fifo_->headers[step_ % kHeaders]; }
  void publish(uint32_t size_bytes, uint32_t call_hash) noexcept {
    PLEXUS_DCHECK(step_ - taken_ < kHeaders, step_, taken_);
    if (needs_cleaning(step_, kSlots)) {
      clean();
    }
    SlotHeader& slot = header();
    slot.size_bytes = size_bytes;
    slot.call_hash = call_hash;
    slot.call = call_;
    ++step_;
    if (options_.reach != Reach::kProcess) {
      note_sent_outside();
    }
    slot.ready.store(step_, std::memory_order_release);  // pairs with try_peek()
    // The receiver has read the next one the last time around, and does not look at it yet.
    prefetch_to_write(&header());
  }

  /// The next small payload is probably as long.
  [[gnu::noinline]] void fetch_next_small(uint32_t size_bytes) const noexcept {
    const std::byte* const next = fifo_->small[(step_ + 1) % kHeaders];
    for (uint32_t line = 0; line < size_bytes && size_bytes <= kFetchedBytesMax;
         line += kCacheLine) {
      prefetch_to_write(next + line);
    }
  }

  /// Runs once in 2^31 steps, see kernels/layout/protocol.hpp.
  [[gnu::cold]] void clean() noexcept {
    if (has_lines()) {
      for (const Protocol protocol : {Protocol::kLL, Protocol::kLL128}) {
        clean_lines(protocol, lines_of_slot(protocol, options_.lines, step_), cleaning_flag(step_));
      }
    }
  }

  Fifo* fifo_;
  std::byte* data_;
  Options options_;
  uint64_t step_;                // next slot to fill
  uint64_t taken_;               // last value seen of fifo_->taken
  uint64_t borrowed_until_ = 0;  // slots before this one may point to user memory
  uint32_t call_ = 0;            // index of the call's record
};

class RecvConnection {
  static constexpr uint64_t kHeadersAhead = 4;

 public:
  struct Options {
    int peer = -1;
    size_t slot_stride = 0;              // as the sender's
    std::byte* lines = nullptr;          // as the sender's
    Reach reach = Reach::kNothing;       // as the sender's
    PlaceResolver* places = nullptr;     // nullptr: memory is never mapped
    const PeerReader* reader = nullptr;  // nullptr: memory is never read by system calls
  };
  /// Starts at the step where `fifo` is.
  RecvConnection(Fifo* fifo, std::byte* data, const Options& options)
      : fifo_(fifo),
        data_(data),
        options_(options),
        step_(fifo == nullptr ? 0 : fifo->taken.load(std::memory_order_acquire)) {}

  [[nodiscard]] bool connected() const noexcept { return fifo_ != nullptr; }
  [[nodiscard]] int peer() const noexcept { return options_.peer; }
  /// Number of messages that were taken.
  [[nodiscard]] uint64_t received() const noexcept { return step_; }
  [[nodiscard]] bool has_lines() const noexcept { return options_.lines != nullptr; }
  [[nodiscard]] Fifo& fifo() noexcept { return *fifo_; }

  /// In the call that begins, the sender may write to the `size_bytes` of the output at `address`,
  /// if it can.
  void open_output(std::byte* address, uint64_t size_bytes, const MappedPlace& place) noexcept {
    PLEXUS_DCHECK(connected());
    PLEXUS_DCHECK(address != nullptr || size_bytes == 0, size_bytes);
    const bool is_open = options_.reach == Reach::kProcess ||
                         (options_.reach == Reach::kMapped && place.segment != 0);
    WritableOutput& output = fifo_->output;
    const uint64_t open_bytes = is_open ? size_bytes : 0;
    if (options_.reach == Reach::kNothing ||
        (output.size_bytes.load(std::memory_order_relaxed) == open_bytes &&
         (open_bytes == 0 || (output.address == address && output.place == place)))) {
      return;
    }
    // The sender has read it for the last time before it sent the last call's result.
    output.address = address;
    output.place = place;
    output.size_bytes.store(open_bytes, std::memory_order_relaxed);
  }
  /// The call has failed: the sender must not begin to write any more.
  void close_output() noexcept {
    if (options_.reach != Reach::kNothing) {
      fifo_->output.size_bytes.store(0, std::memory_order_seq_cst);
    }
  }
  /// Whether the sender is writing to the output.
  [[nodiscard]] bool is_written() const noexcept {
    return options_.reach != Reach::kNothing &&
           fifo_->writes.load(std::memory_order_seq_cst) != 0;  // pairs with commit_written()
  }

  /// While waiting for the next slot, announces where its payload should go (null: anywhere), for
  /// transports that can deliver it there (kPointer) and for those that fetch only on demand.
  void wait_for(std::byte* place, uint32_t size_bytes) noexcept {
    wanted_ = {.step = step_ + 1, .place = place, .size_bytes = size_bytes};
  }
  struct Wanted {
    uint64_t step = 0;  // 1 + the step that is waited for; smaller than the next step + 1: no wait
    std::byte* place = nullptr;
    uint32_t size_bytes = 0;
  };
  [[nodiscard]] const Wanted& wanted() const noexcept { return wanted_; }

  /// Whether the next slot is filled.
  [[nodiscard]] bool try_peek() const noexcept {
    // pairs with SendConnection::publish()
    const bool is_there = header().ready.load(std::memory_order_acquire) == step_ + 1;
    if (is_there && options_.reach != Reach::kProcess) {
      note_heard_from_outside();
    }
    return is_there;
  }
  [[nodiscard]] const SlotHeader& header() const noexcept {
    return fifo_->headers[step_ % kHeaders];
  }

  /// Whether the payload is to be read by read_attached() instead of at payload().
  [[nodiscard]] bool is_attached() const noexcept { return header().kind == SlotKind::kAttached; }
  [[nodiscard]] bool reads_attached() const noexcept { return options_.reader != nullptr; }
  /// Copies a part of the filled slot's payload, which starts at `offset`. 0, or why not, as errno:
  /// ECANCELED when the sender's call has failed, after which its memory may change.
  [[nodiscard]] int read_attached(std::byte* target, size_t offset, size_t size) const noexcept {
    PLEXUS_DCHECK(reads_attached() && is_attached());
    const int error = options_.reader->read(target, header().payload.address + offset, size);
    std::atomic_thread_fence(std::memory_order_acquire);  // after the copy; see revoke()
    return fifo_->sender.revoked.load(std::memory_order_relaxed) != 0 ? ECANCELED : error;
  }

  /// The number of bytes from the filled slot's payload on that the peer sent in one piece of its
  /// memory, in this slot and in those of the same call that are filled behind it; at most `most`.
  [[nodiscard]] size_t attached_bytes(size_t most) const noexcept {
    const SlotHeader& first = header();
    size_t bytes = first.size_bytes;
    for (uint64_t step = step_ + 1; step < step_ + kSlots; ++step) {
      const SlotHeader& slot = fifo_->headers[step % kHeaders];
      // pairs with SendConnection::publish()
      if (slot.ready.load(std::memory_order_acquire) != step + 1 ||
          slot.kind != SlotKind::kAttached || slot.call_hash != first.call_hash ||
          slot.payload.address != first.payload.address + bytes || slot.size_bytes > most - bytes) {
        break;
      }
      bytes += slot.size_bytes;
    }
    return bytes;
  }

  /// The payload of the filled slot; nullptr: there is no mapping of it.
  [[nodiscard]] const std::byte* payload() const noexcept {
    const SlotHeader& slot = header();
    PLEXUS_DCHECK(slot.kind != SlotKind::kData || slot.size_bytes <= options_.slot_stride,
                  slot.size_bytes, options_.slot_stride);
    switch (slot.kind) {
      case SlotKind::kInline:
        return slot.payload.bytes;
      case SlotKind::kSmall:
        return fifo_->small[step_ % kHeaders];
      case SlotKind::kPointer:
        return slot.payload.pointer;
      case SlotKind::kMapped:
        return options_.places == nullptr
                   ? nullptr
                   : options_.places->find(slot.payload.place, slot.size_bytes);
      case SlotKind::kAttached:
        return nullptr;
      case SlotKind::kData:
        break;
    }
    return data_ + (step_ % kSlots) * options_.slot_stride;
  }

  /// Whether the next line of the slot has arrived.
  [[nodiscard]] bool try_peek_line(Protocol protocol) const noexcept {
    return has_line(protocol, lines_of_slot(protocol, options_.lines, step_), arrival_.lines_done,
                    flag_of_step(step_));
  }
  /// Copies the lines that have arrived to `payload`, which must be the same until release(). True:
  /// the message is complete.
  [[nodiscard]] bool try_read_lines(Protocol protocol,
                                    std::byte* payload,
                                    uint32_t size_bytes,
                                    uint32_t call_hash) noexcept {
    PLEXUS_DCHECK(has_lines());
    PLEXUS_DCHECK(size_bytes <= payload_bytes_max(protocol), size_bytes, protocol);
    if (options_.reach != Reach::kProcess) {
      note_heard_from_outside();
    }
    return read_lines(protocol, lines_of_slot(protocol, options_.lines, step_), payload, size_bytes,
                      call_hash, flag_of_step(step_), arrival_);
  }
  /// Progress of the slot that is read by lines.
  [[nodiscard]] const Arrival& arrival() const noexcept { return arrival_; }

  void release() noexcept {
    PLEXUS_DCHECK(has_lines() || header().ready.load(std::memory_order_relaxed) == step_ + 1,
                  header().ready.load(std::memory_order_relaxed), step_);
    ++step_;
    arrival_ = {};
    fifo_->taken.store(step_, std::memory_order_release);  // pairs with try_acquire(), all_taken()
    // Where a sender is ahead, its headers come one behind the other; where it is not, this one is
    // still in this core's cache, from the last time around.
    __builtin_prefetch(&fifo_->headers[(step_ + kHeadersAhead) % kHeaders]);
  }

 private:
  Fifo* fifo_;
  std::byte* data_;
  Options options_;
  uint64_t step_;  // next slot to read
  Wanted wanted_;
  Arrival arrival_;
};

}  // namespace plexus
