// SPDX-License-Identifier: Apache-2.0
// The Fifo of a connection that a pump serves: private memory of one rank. Its executor, or its
// kernels, are on one side of the slots; the pump, which moves them through a plugin, is on the
// other. Payloads always lie in the data area of a slot, never in the Fifo, and never as lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/transport/connection.hpp"
#include "core/transport/memory/direct.hpp"
#include "core/transport/memory/fifo_memory.hpp"
#include "guest/assert.hpp"

namespace plexus {

class PumpFifo {
 public:
  struct Options {
    size_t payload_bytes;              // a slot's payload, at most
    size_t header_bytes = 0;           // before each payload, for the pump alone
    std::byte* payloads = nullptr;     // [kSlots][payload_bytes]; nullptr: behind the headers
    DeviceRuntime* runtime = nullptr;  // set for a CUDA rank, whose kernels use the slots
    int device = -1;                   // that rank's device
  };
  /// Without memory.
  PumpFifo() = default;
  static Result<PumpFifo> create(const Options& options) {
    PumpFifo made;
    made.options_ = options;
    PLEXUS_TRY(memory, LocalFifo::create(made.slot_stride(), {.runtime = options.runtime}));
    made.memory_ = std::move(memory);
    made.fifo_ = fifo_at(made.memory_->memory());
    if (options.runtime != nullptr) {
      PLEXUS_TRY(seen_at, made.memory_->show_to_devices(*options.runtime, options.device));
      made.seen_by_devices_ = seen_at;
    }
    return made;
  }

  [[nodiscard]] bool has_memory() const noexcept { return fifo_ != nullptr; }
  [[nodiscard]] Fifo& fifo() const noexcept { return *fifo_; }
  /// Header and payload, or the header alone where payloads lie elsewhere.
  [[nodiscard]] std::byte* slot(uint64_t step) const noexcept {
    return slots_at(memory_->memory()) + (step % kSlots) * slot_stride();
  }
  [[nodiscard]] std::byte* payload(uint64_t step) const noexcept {
    return options_.payloads == nullptr
               ? slot(step) + options_.header_bytes
               : options_.payloads + (step % kSlots) * options_.payload_bytes;
  }
  /// All slots together, in host memory.
  [[nodiscard]] size_t slots_bytes() const noexcept { return kSlots * slot_stride(); }

  [[nodiscard]] size_t held_bytes() const noexcept {
    return memory_ == nullptr ? 0 : memory_->held_bytes();
  }

  // For a sending pump:
  /// True when the slot of `step` is filled, by the executor in this thread or by a kernel: pairs
  /// with its release.
  [[nodiscard]] bool is_filled(uint64_t step) const noexcept {
    return header(step).ready.load(std::memory_order_acquire) == step + 1;
  }
  [[nodiscard]] const SlotHeader& header(uint64_t step) const noexcept {
    PLEXUS_DCHECK(has_memory(), step);
    return fifo_->headers[step % kHeaders];
  }
  /// All slots before `step` may be filled again: pairs with try_acquire() in a kernel.
  void release_until(uint64_t step) const noexcept {
    PLEXUS_DCHECK(fifo_->taken.load(std::memory_order_relaxed) <= step, step);
    fifo_->taken.store(step, std::memory_order_release);
  }
  // For a receiving pump:
  /// True when the slot of `step` may be written: its last message was taken in this thread or by a
  /// kernel: pairs with its release.
  [[nodiscard]] bool is_free(uint64_t step) const noexcept {
    return step < fifo_->taken.load(std::memory_order_acquire) + kSlots;
  }

  // What the end offers:
  [[nodiscard]] SendConnection send_connection(int peer, Reach reach) const {
    return {fifo_,
            payload(0),
            {.peer = peer, .reach = reach, .inline_bytes_max = 0, .slot_stride = slot_stride()}};
  }
  [[nodiscard]] RecvConnection recv_connection(int peer) const {
    return {fifo_, payload(0), {.peer = peer, .slot_stride = slot_stride()}};
  }
  [[nodiscard]] DeviceView device_view() const {
    return {.fifo = seen_by_devices_,
            .slots = options_.payloads != nullptr
                         ? options_.payloads
                         : slots_at(seen_by_devices_) + options_.header_bytes,
            .slot_stride = options_.payloads != nullptr ? options_.payload_bytes : slot_stride(),
            .inline_bytes_max = 0};
  }

 private:
  [[nodiscard]] size_t slot_stride() const noexcept {
    return options_.header_bytes + (options_.payloads == nullptr ? options_.payload_bytes : 0);
  }

  Options options_{};
  std::shared_ptr<LocalFifo> memory_;
  std::byte* seen_by_devices_ = nullptr;
  Fifo* fifo_ = nullptr;
};

}  // namespace plexus
