// SPDX-License-Identifier: Apache-2.0
#include "tools/sim/model.hpp"

#include <algorithm>

#include "core/schedule/partition.hpp"

namespace plexus {

uint64_t chunk_bytes(const Geometry& geometry, uint32_t loop, uint32_t element_bytes) {
  if (geometry.blocked) {
    const uint64_t left = geometry.part_count - loop * geometry.chunk_count;
    return std::min(geometry.chunk_count, left) * element_bytes;
  }
  const bool is_last = loop + 1 == geometry.loops;
  return (is_last ? geometry.last_chunk_count : geometry.chunk_count) * element_bytes;
}

Geometry geometry_of(const SimJob& job, const Program& program, int channel) {
  const uint32_t slot_bytes = uses_lines(job.protocol)
                                  ? std::min(job.slot_bytes, payload_bytes_max(job.protocol))
                                  : job.slot_bytes;
  return compute_partition({.collective = job.algorithm->collective,
                            .count = job.count,
                            .element_bytes = job.element_bytes,
                            .nranks = job.nranks,
                            .chunks = program.chunks,
                            .scratch_chunks = program.scratch_chunks,
                            .divides_buffer = program.divides_buffer,
                            .channel = channel,
                            .channels = job.channels,
                            .slot_bytes = slot_bytes});
}

}  // namespace plexus
