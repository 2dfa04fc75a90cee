// SPDX-License-Identifier: Apache-2.0
// The data layout of one operation: sizes and positions of a rank's buffers, the input and the
// expected result, as a list of parts. Pure; the checker iterates over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tools/cli/perf/traffic.hpp"
#include "tools/cli/perf/vocabulary.hpp"

namespace plexus::perf {

/// One operation from the view of one rank.
struct Shape {
  Collective collective;
  Type type;
  int nranks;
  int rank;
  int root;      // root of a rooted collective; else -1
  size_t count;  // the argument of the call
  bool in_place;
  const Traffic* traffic;  // of alltoallv: who sends how much to whom
};

/// A range of elements of the receive buffer, and its expected contents after the operation.
struct Part {
  enum class Kind {
    kStream,     // elements from `first_index` of what `source` sends
    kResult,     // elements from `first_index` of the reduction
    kUntouched,  // unchanged: the buffer has no meaning on this rank
  };
  Kind kind;
  size_t offset;  // in the receive buffer, elements
  size_t count;
  int source;
  size_t first_index;
  friend bool operator==(const Part&, const Part&) = default;
};

/// Sizes in elements. In place, the smaller buffer is a part of the larger one, at `inner_offset`.
/// The in-place form of a collective that has none is a call with one buffer for both.
struct Places {
  size_t send_count;
  size_t recv_count;
  size_t inner_offset;
};

[[nodiscard]] Places compute_places(const Shape& shape) noexcept;
[[nodiscard]] std::vector<Part> compute_expected(const Shape& shape);
/// The size column: the larger side of the operation, of the rank that has most. Of `shape.rank`
/// and `shape.in_place` it is independent.
[[nodiscard]] size_t compute_size_bytes(const Shape& shape) noexcept;
/// Elements that `source` sends to `target` in an all-to-all, of equal parts or not.
[[nodiscard]] size_t peer_count(const Shape& shape, int source, int target) noexcept;

/// The neighbours of sendrecv.
[[nodiscard]] constexpr int next_rank(int rank, int nranks) noexcept { return (rank + 1) % nranks; }
[[nodiscard]] constexpr int prev_rank(int rank, int nranks) noexcept {
  return (rank + nranks - 1) % nranks;
}

}  // namespace plexus::perf
