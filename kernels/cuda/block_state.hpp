// SPDX-License-Identifier: Apache-2.0
// What the threads of a block share, and where the bytes of a step are.
#pragma once

#include "kernels/cuda/pass.hpp"

namespace plexus {

/// State that the threads of a block share. Work and step are copies of the launch's tables, which
/// may be in pinned memory; the ends of the step's peers are copies that the thread that serves a
/// peer writes back after the step.
// NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): shared memory, written before it is read
struct BlockState {
  // Operands of a short LL message, and its value, by unit: see staged.hpp.
  static constexpr uint32_t kStagedUnits = 128;
  alignas(Vector) uint64_t staged[kStagedUnits];
  Pass pass;
  DeviceWork work;
  Step step;
  DeviceRecv recvs[kDevicePeersMax];
  DeviceSend sends[kDevicePeersMax];
  // addresses were sent, so their bytes must not change until they are taken
  uint32_t addresses_out;
};

/// The bytes of a step in its buffers, and the part of them that one slot carries.
struct StepExtent {
  uint64_t source_bytes;  // offset
  uint64_t target_bytes;  // offset
  uint64_t size_bytes;
};

PLEXUS_DEVICE inline uint32_t log2_of_element(DataType type) {
  switch (type) {
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 1;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32:
      return 2;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
      return 3;
    default:
      return 0;
  }
}

PLEXUS_DEVICE inline Span chunk_span(const DeviceWork& work,
                                     Buffer buffer,
                                     int chunk,
                                     uint32_t loop) {
  const Geometry& geometry = work.geometry;
  const auto index = static_cast<uint32_t>(chunk);
  // a chunk of scratch is as long as the buffer's chunk with the same index
  if (buffer == Buffer::kScratch) {
    const Span like = span_of(geometry, 0, geometry.blocked ? 0 : index, loop);
    return {index * geometry.chunk_count, like.count};
  }
  return span_of(geometry,
                 buffer == Buffer::kInput ? geometry.input_stride : geometry.output_stride, index,
                 loop);
}

PLEXUS_DEVICE inline StepExtent extent_of(const DeviceWork& work, const Step& step, uint32_t loop) {
  // Verbs without a local buffer forward as many bytes as their output chunk would hold.
  const bool has_source = step.source != Buffer::kNone;
  const Span source = chunk_span(work, has_source ? step.source : Buffer::kOutput,
                                 has_source ? step.source_chunk : step.target_chunk, loop);
  const Span target = step.target == Buffer::kNone
                          ? source
                          : chunk_span(work, step.target, step.target_chunk, loop);
  const uint32_t shift = log2_of_element(work.type);
  return {source.offset << shift, target.offset << shift, source.count << shift};
}

PLEXUS_DEVICE inline std::byte* place_of(const DeviceWork& work, Buffer buffer, uint64_t offset) {
  switch (buffer) {
    case Buffer::kInput:
      return work.input + offset;
    case Buffer::kOutput:
      return work.output + offset;
    case Buffer::kScratch:
      return work.scratch + offset;
    case Buffer::kNone:
      break;
  }
  return nullptr;
}

/// One slice of a step.
struct Slice {
  std::byte* source;  // own contribution; nullptr: none
  std::byte* target;  // location of the value; nullptr: none
  uint32_t size_bytes;
  bool scales;
  bool delivers;  // to the outputs of those peers that have opened them
  bool staged;    // see stages()
  // Of a message of several chunks, this one: those before it have `before_bytes`.
  uint32_t before_bytes;
  bool is_last;

  /// The message has this chunk only.
  [[nodiscard]] PLEXUS_DEVICE bool is_alone() const { return before_bytes == 0 && is_last; }
};

/// Place of this rank's own contribution among the operands.
PLEXUS_DEVICE inline uint32_t own_position(const Step& step) {
  return static_cast<uint32_t>(step.own_position < step.receives ? step.own_position
                                                                 : step.receives);
}

PLEXUS_DEVICE inline uint32_t units_of(uint32_t size_bytes) {
  return (size_bytes + kUnitBytes - 1) / kUnitBytes;
}
PLEXUS_DEVICE inline uint32_t bytes_of_unit(uint32_t size_bytes, uint32_t unit) {
  const uint32_t left = size_bytes - unit * kUnitBytes;
  return left < kUnitBytes ? left : kUnitBytes;
}

/// log2 of the number of units in BlockState::staged that an operand of so many bytes takes.
PLEXUS_DEVICE inline uint32_t staged_shift(uint32_t size_bytes) {
  uint32_t shift = 0;
  while (kUnitBytes << shift < size_bytes && shift < 16) {
    ++shift;
  }
  return shift;
}

PLEXUS_DEVICE inline bool by_lines(const DeviceWork& work, const std::byte* lines) {
  return work.protocol != Protocol::kSimple && lines != nullptr;
}
/// Offset of the lines of slot `step`: all slots of LL come first, then all of LL128.
PLEXUS_DEVICE inline uint64_t lines_offset(Protocol protocol, uint64_t step) {
  return protocol == Protocol::kLL ? step % kSlots * kSlotBytesLL
                                   : kSlots * kSlotBytesLL + step % kSlots * kSlotBytesLL128;
}
PLEXUS_DEVICE inline Carrier carrier_of(Protocol protocol) {
  return protocol == Protocol::kLL ? Carrier::kLL : Carrier::kLL128;
}

}  // namespace plexus
