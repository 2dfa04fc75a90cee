// SPDX-License-Identifier: Apache-2.0
// Where the data of one operation lies: sizes and places of a rank's buffers, what goes in and what
// must come out, as a list of parts. Pure; the checker walks it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tools/cli/perf/vocabulary.hpp"

namespace plexus::perf {

/// One operation as one rank sees it.
struct Shape {
  Collective collective;
  Type type;
  int nranks;
  int rank;
  int root;      // of a rooted collective, else -1
  size_t count;  // the argument of the call
  bool in_place;
};

/// A range of elements of the receive buffer and what it must hold after the operation.
struct Part {
  enum class Kind {
    kStream,     // elements from `first_index` of what `source` sends
    kResult,     // elements from `first_index` of the reduction
    kUntouched,  // what was there before: the buffer means nothing on this rank
  };
  Kind kind;
  size_t offset;  // in the receive buffer, elements
  size_t count;
  int source;
  size_t first_index;
  friend bool operator==(const Part&, const Part&) = default;
};

/// Sizes in elements. In place, the smaller buffer is a part of the larger one, at `inner_offset`.
struct Places {
  size_t send_count;
  size_t recv_count;
  size_t inner_offset;
};

[[nodiscard]] Places compute_places(const Shape& shape) noexcept;
[[nodiscard]] std::vector<Part> compute_expected(const Shape& shape);

/// The neighbours of sendrecv.
[[nodiscard]] constexpr int next_rank(int rank, int nranks) noexcept { return (rank + 1) % nranks; }
[[nodiscard]] constexpr int prev_rank(int rank, int nranks) noexcept {
  return (rank + nranks - 1) % nranks;
}

}  // namespace plexus::perf
