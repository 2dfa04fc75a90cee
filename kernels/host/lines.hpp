// SPDX-License-Identifier: Apache-2.0
// Messages of the protocols LL and LL128 in memory: writes their lines, and reads them as they
// arrive. Nothing blocks. `lines`: a slot of kSlotBytesLL or kSlotBytesLL128 bytes, 128-aligned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/layout/protocol.hpp"

namespace plexus {

/// Writes `size_bytes` (at most payload_bytes_max) as lines with `flag`.
void write_lines(Protocol protocol,
                 std::byte* lines,
                 const std::byte* payload,
                 uint32_t size_bytes,
                 uint32_t hash,
                 uint32_t flag) noexcept;

/// Sets the flag of every line of the slot to `flag`.
void clean_lines(Protocol protocol, std::byte* lines, uint32_t flag) noexcept;

/// Progress of reading a message.
struct Arrival {
  uint32_t lines_done = 0;
  uint32_t other_hash = 0;  // the hash that arrived in place of the expected one
  bool is_other_call = false;
};

/// Whether line number `line` has arrived.
bool has_line(Protocol protocol, const std::byte* lines, uint32_t line, uint32_t flag) noexcept;

/// Copies what has arrived since `arrival` to `payload`. True: the message is complete. False: the
/// rest has not arrived, or (`is_other_call`) never will.
bool read_lines(Protocol protocol,
                const std::byte* lines,
                std::byte* payload,
                uint32_t size_bytes,
                uint32_t hash,
                uint32_t flag,
                Arrival& arrival) noexcept;

}  // namespace plexus
