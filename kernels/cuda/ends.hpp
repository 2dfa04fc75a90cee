// SPDX-License-Identifier: Apache-2.0
// What is done at the sending end of a connection, whoever does it.
#pragma once

#include "kernels/cuda/block_state.hpp"

namespace plexus {

/// Waits until the first `until` slots of the end were taken.
PLEXUS_DEVICE inline bool await_taken(const DeviceWork& work, DeviceSend& end, uint64_t until) {
  if (end.taken >= until) {
    return true;
  }
  const uint64_t* const word = word_of(&end.fifo->taken);
  uint64_t taken = 0;
  const bool came = wait_until(*work.control, [&] {
    taken = load_acquire(word);
    return taken >= until;
  });
  end.taken = taken;
  return came;
}

/// Like SharedCall::store(), because a network's pump may read the records at the same time.
PLEXUS_DEVICE inline void tell_call(Fifo& fifo, const CallRecord& call) {
  uint64_t values[SharedCall::kWords];
  memcpy(values, &call, sizeof(call));
  SharedCall& told = fifo.calls[record_of_call(call.sequence)];
  for (size_t i = 0; i < SharedCall::kWords; ++i) {
    store_relaxed(word_of(&told.words[i]), values[i]);
  }
}

/// Runs once in 2^31 steps, see kernels/layout/protocol.hpp.
PLEXUS_DEVICE_NOINLINE inline void clean(DeviceSend& end) {
  const uint64_t word = line_word(0, cleaning_flag(end.step));
  std::byte* const words = end.lines + lines_offset(Protocol::kLL, end.step);
  for (uint32_t i = 0; i < lines_of(Protocol::kLL, kPayloadBytesMaxLL); ++i) {
    store_relaxed(reinterpret_cast<uint64_t*>(words) + i, word);
  }
  std::byte* const lines = end.lines + lines_offset(Protocol::kLL128, end.step);
  for (uint32_t i = 0; i < lines_of(Protocol::kLL128, kPayloadBytesMaxLL128); ++i) {
    std::byte* const last = lines + i * sizeof(LineLL128) + kDataBytesOfLineLL128;
    store_relaxed(reinterpret_cast<uint64_t*>(last), word);
  }
}

/// Tells the peer of the call, and cleans lines whose flags come round again.
PLEXUS_DEVICE inline void begin_message(const DeviceWork& work, DeviceSend& end) {
  if (end.told != work.call.sequence + 1) {
    tell_call(*end.fifo, work.call);
    end.told = work.call.sequence + 1;
  }
  if (end.lines != nullptr && needs_cleaning(end.step, kSlots)) {
    clean(end);
  }
}
PLEXUS_DEVICE inline SlotHeader& fill_header(const DeviceWork& work,
                                             const DeviceSend& end,
                                             uint32_t size_bytes) {
  SlotHeader& slot = end.fifo->headers[end.step % kHeaders];
  slot.size_bytes = size_bytes;
  slot.call_hash = work.call.hash;
  slot.call = record_of_call(work.call.sequence);
  return slot;
}
[[nodiscard]] PLEXUS_DEVICE inline bool fits_header(const Slice& slice, const DeviceSend& end) {
  return slice.is_alone() && slice.size_bytes <= end.inline_bytes_max;
}

}  // namespace plexus
