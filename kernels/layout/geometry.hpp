// SPDX-License-Identifier: Apache-2.0
// Geometry: the elements that chunk `c` of loop `l` covers. A pure function of values that all
// ranks of a call share, so that both ends of every connection compute the same spans (both skip
// empty spans).
#pragma once

#include <cstdint>

#include "kernels/layout/macros.hpp"

namespace plexus {

/// Elements [offset, offset + count) of a buffer.
struct Span {
  uint64_t offset;
  uint64_t count;
};

/// One channel's part of a rank's block, in a collective whose ranks have counts of their own.
struct BlockPart {
  uint64_t input;  // its first element in the input, and in the output
  uint64_t output;
  uint64_t count;
};

/// One channel's part of a call.
struct Geometry {
  uint64_t part_offset;  // first element of the part (within each block, when blocked)
  uint64_t part_count;   // elements of the part (of each block, when blocked)
  uint64_t chunk_count;  // elements per chunk and loop, > 0
  // elements per chunk in the last loop, unless blocked (see last_chunk_count())
  uint64_t last_chunk_count;
  uint32_t chunks;  // chunk indices per loop; 1 when blocked
  uint32_t loops;
  uint64_t input_stride;  // elements between the blocks of the input; 0: one block only
  uint64_t output_stride;
  bool blocked;  // chunk index = block index (all-gather, all-to-all, ...); else the chunks of a
                 // loop are consecutive (all-reduce, broadcast, reduce)
};

/// Elements per chunk in the last loop of a part that is not blocked: the rest is divided evenly in
/// multiples of `granule`, so that no rank is idle. For planning only, because it divides.
PLEXUS_HOST_DEVICE constexpr uint64_t last_chunk_count(uint64_t part_count,
                                                       uint64_t chunk_count,
                                                       uint32_t chunks,
                                                       uint64_t granule) {
  const uint64_t loop_count = chunk_count * chunks;
  const uint64_t left = part_count % loop_count;
  if (left == 0) {
    return chunk_count;
  }
  const uint64_t even = (left + chunks - 1) / chunks;
  return (even + granule - 1) / granule * granule;
}

/// The elements of `chunk` in `loop`, in the buffer whose block stride is `stride`.
PLEXUS_HOST_DEVICE constexpr Span span_of(const Geometry& geometry,
                                          uint64_t stride,
                                          uint32_t chunk,
                                          uint32_t loop) {
  if (geometry.blocked) {
    const uint64_t done = loop * geometry.chunk_count;
    const uint64_t left = geometry.part_count - done;
    return {chunk * stride + geometry.part_offset + done,
            left < geometry.chunk_count ? left : geometry.chunk_count};
  }
  const uint64_t loop_count = geometry.chunk_count * geometry.chunks;
  const uint64_t done = loop * loop_count;
  const uint64_t left = geometry.part_count - done;
  const uint64_t chunk_count = left < loop_count ? geometry.last_chunk_count : geometry.chunk_count;
  const uint64_t before = chunk * chunk_count;
  if (before >= left) {
    return {geometry.part_offset + done + left, 0};
  }
  const uint64_t rest = left - before;
  return {geometry.part_offset + done + before, rest < chunk_count ? rest : chunk_count};
}

}  // namespace plexus
