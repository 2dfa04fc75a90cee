// SPDX-License-Identifier: Apache-2.0
// Fills the buffers of one operation and then checks every byte of them: the elements of the
// result, input that must be unchanged, receive buffers without meaning on this rank, and guard
// bytes on both sides of each buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tools/cli/perf/data.hpp"
#include "tools/cli/perf/layout.hpp"

namespace plexus::perf {

/// Guard bytes on each side of a buffer; the first guard is a whole page so that data begins on a
/// page boundary.
inline constexpr size_t kGuardBytes = 4096;

/// The buffers of one operation. In place, one lies in the other.
struct OpBuffers {
  std::byte* send;
  size_t send_bytes;
  std::byte* recv;
  size_t recv_bytes;
};

/// Places the operation in `first` and `second`, each large enough for its larger side. In place
/// only `second` is used.
[[nodiscard]] OpBuffers bind_buffers(const Shape& shape,
                                     std::byte* first,
                                     std::byte* second) noexcept;

struct CheckInput {
  Shape shape;
  Op op;          // only for a collective that reduces
  uint64_t seed;  // different for each operation, equal on all ranks
  OpBuffers buffers;
};

struct CheckResult {
  uint64_t wrong = 0;  // number of elements; a damaged guard byte counts as one
  std::string first;   // description of the first error; empty: none
};

/// Writes the input, the guards and, where the result goes, a pattern that differs from the result.
void prepare_operation(const CheckInput& input);
[[nodiscard]] CheckResult check_operation(const CheckInput& input);

}  // namespace plexus::perf
