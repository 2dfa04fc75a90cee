// SPDX-License-Identifier: Apache-2.0
// How a receiver recognises that a message has arrived. Simple: a header beside the payload,
// written last. LL and LL128 (low latency): the payload travels in lines that each carry a flag, so
// that the receiver needs only one access. kernels/layout/README.md specifies them.
//
// A flag is the low half of the step's number plus one. Lines of a slot keep their flags until the
// slot is used again, which the half-lap rule (see needs_cleaning) makes safe for any number of
// steps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/layout/macros.hpp"

namespace plexus {

enum class Protocol : uint8_t { kLL, kLL128, kSimple };
inline constexpr std::array kProtocols = {Protocol::kLL, Protocol::kLL128, Protocol::kSimple};

/// NCCL_PROTO's spelling.
constexpr const char* name(Protocol protocol) {
  constexpr const char* kNames[] = {"LL", "LL128", "Simple"};
  return kNames[static_cast<int>(protocol)];
}

constexpr bool uses_lines(Protocol protocol) { return protocol != Protocol::kSimple; }

/// LL: 4 bytes of data and 4 bytes of flag, written as one 8-byte word. The data of the first line
/// is the call's hash.
struct LineLL {
  uint32_t data;
  uint32_t flag;
};
static_assert(sizeof(LineLL) == 8);

inline constexpr uint32_t kDataBytesOfLineLL128 = 120;

/// LL128: data, then hash and flag as one 8-byte word, written last.
struct alignas(128) LineLL128 {
  std::byte data[kDataBytesOfLineLL128];
  uint64_t hash_and_flag;  // flag in the high half
};
static_assert(sizeof(LineLL128) == 128);

/// Largest payload of one slot's lines.
inline constexpr uint32_t kPayloadBytesMaxLL = 4096;
inline constexpr uint32_t kPayloadBytesMaxLL128 = 8192;

constexpr uint32_t payload_bytes_max(Protocol protocol) {
  return protocol == Protocol::kLL ? kPayloadBytesMaxLL : kPayloadBytesMaxLL128;
}

/// Largest payload of one slot of `slot_bytes`: its own, or that of its lines.
constexpr uint32_t payload_bytes_max(Protocol protocol, uint32_t slot_bytes) {
  return uses_lines(protocol) && payload_bytes_max(protocol) < slot_bytes
             ? payload_bytes_max(protocol)
             : slot_bytes;
}

/// Number of lines for `size_bytes` of payload.
PLEXUS_HOST_DEVICE constexpr uint32_t lines_of(Protocol protocol, uint32_t size_bytes) {
  return protocol == Protocol::kLL
             ? 1 + (size_bytes + 3) / 4
             : (size_bytes + kDataBytesOfLineLL128 - 1) / kDataBytesOfLineLL128;
}

inline constexpr size_t kSlotBytesLL128 =
    lines_of(Protocol::kLL128, kPayloadBytesMaxLL128) * sizeof(LineLL128);
inline constexpr size_t kSlotBytesLL =
    (lines_of(Protocol::kLL, kPayloadBytesMaxLL) * sizeof(LineLL) + 127) / 128 * 128;

PLEXUS_HOST_DEVICE constexpr uint32_t flag_of_step(uint64_t step) {
  return static_cast<uint32_t>(step + 1);
}

/// Flags repeat after 2^32 steps. In the first lap of slots of every half of that range, except the
/// very first, the sender therefore sets all lines of the slot to a flag of the other half (0 or
/// 2^31) before it uses the slot: no line can then hold a flag that the receiver will wait for.
PLEXUS_HOST_DEVICE constexpr bool needs_cleaning(uint64_t step, uint64_t slots) {
  constexpr uint64_t kHalfRange = uint64_t{1} << 31;
  return step + 1 >= kHalfRange && ((step + 1) & (kHalfRange - 1)) < slots;
}
PLEXUS_HOST_DEVICE constexpr uint32_t cleaning_flag(uint64_t step) {
  constexpr uint32_t kHalfRange = uint32_t{1} << 31;
  return (flag_of_step(step) & kHalfRange) != 0 ? 0 : kHalfRange;
}

}  // namespace plexus
