// SPDX-License-Identifier: Apache-2.0
// Messages of the protocols LL and LL128 in memory: writing their lines, and reading them as they
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

/// Gives every line of the slot `flag`.
void clean_lines(Protocol protocol, std::byte* lines, uint32_t flag) noexcept;

/// How far a message has been read.
struct Arrival {
  uint32_t lines_done = 0;
  uint32_t other_hash = 0;  // what arrived in place of the hash that was expected
  bool is_other_call = false;
};

/// Has line number `line` come?
bool has_line(Protocol protocol, const std::byte* lines, uint32_t line, uint32_t flag) noexcept;

/// Copies what has come since `arrival` to `payload`. True: all of it is there. False: more is to
/// come, or (`is_other_call`) never will.
bool read_lines(Protocol protocol,
                const std::byte* lines,
                std::byte* payload,
                uint32_t size_bytes,
                uint32_t hash,
                uint32_t flag,
                Arrival& arrival) noexcept;

}  // namespace plexus
