// SPDX-License-Identifier: Apache-2.0
// Fills the buffers of one operation and looks at every byte of them afterwards: each element of
// the result, input that must not have changed, receive buffers that mean nothing on this rank, and
// guard bytes on both sides of each buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tools/cli/perf/data.hpp"
#include "tools/cli/perf/layout.hpp"

namespace plexus::perf {

/// Bytes that belong to the benchmark on each side of a buffer; the first guard is a whole page so
/// that data begins on one.
inline constexpr size_t kGuardBytes = 4096;

/// The buffers of one operation. In place, one lies in the other.
struct OpBuffers {
  std::byte* send;
  size_t send_bytes;
  std::byte* recv;
  size_t recv_bytes;
};

/// Lays the operation into `first` and `second`, each with room for its larger side. In place only
/// `second` is used.
[[nodiscard]] OpBuffers bind_buffers(const Shape& shape,
                                     std::byte* first,
                                     std::byte* second) noexcept;

struct CheckInput {
  Shape shape;
  Op op;          // of a collective that reduces
  uint64_t seed;  // another one for each operation, the same on all ranks
  OpBuffers buffers;
};

struct CheckResult {
  uint64_t wrong = 0;  // elements; a damaged guard byte counts as one
  std::string first;   // what was found first, for people; empty when nothing is wrong
};

/// Writes input, guards and, where the result goes, a pattern that is not the result.
void prepare_operation(const CheckInput& input);
[[nodiscard]] CheckResult check_operation(const CheckInput& input);

}  // namespace plexus::perf
