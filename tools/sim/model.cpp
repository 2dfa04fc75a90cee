// SPDX-License-Identifier: Apache-2.0
#include "tools/sim/model.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace plexus {

uint64_t chunk_bytes(const Geometry& geometry, uint32_t loop, uint32_t element_bytes) {
  return span_of(geometry, 0, 0, loop).count * element_bytes;
}

uint64_t step_bytes(const Geometry& geometry,
                    const Step& step,
                    uint32_t loop,
                    uint32_t element_bytes) {
  // Blocks are equally long, and a chunk of scratch is as long as the buffer's with its index.
  const int chunk = geometry.blocked               ? 0
                    : step.source != Buffer::kNone ? step.source_chunk
                                                   : step.target_chunk;
  return span_of(geometry, 0, static_cast<uint32_t>(chunk), loop).count * element_bytes;
}

Program program_of(const SimExchange& exchange, int rank, int nranks) {
  Program both;
  both.rank = rank;
  both.nranks = nranks;
  both.chunks = 1;
  std::vector<int> ring(static_cast<size_t>(nranks));
  std::iota(ring.begin(), ring.end(), 0);
  const auto add = [&](const char* end, int peer) {
    if (exchange.wraps) {
      peer = (peer % nranks + nranks) % nranks;
    }
    if (peer < 0 || peer >= nranks || peer == rank) {
      return;
    }
    Program one = program_of(*find_algorithm(end), {.rank = rank, .ring = ring, .root = peer});
    for (Lane& lane : one.lanes) {
      for (Step& step : lane.steps) {
        step.peers_first += static_cast<int>(both.peers.size());
      }
      both.lanes.push_back(std::move(lane));
    }
    both.peers.insert(both.peers.end(), one.peers.begin(), one.peers.end());
  };
  add("send", rank + exchange.distance);
  add("recv", rank - exchange.distance);
  return both;
}

/// A call of `job`'s algorithm, with the chunks of no program.
PartitionInput call_of(const SimJob& job) {
  return {.collective = job.algorithm->collective,
          .count = job.count,
          .element_bytes = job.element_bytes,
          .nranks = job.nranks,
          .channels = job.channels,
          .slot_bytes = payload_bytes_max(job.protocol, job.slot_bytes)};
}

MessageForm message_form_of(const SimJob& job) {
  return plexus::message_form_of({.algorithm = job.algorithm,
                                  .protocol = job.protocol,
                                  .in_memory = job.ranks_per_node >= job.nranks},
                                 call_of(job));
}

Geometry geometry_of(const SimJob& job, const Program& program, int channel) {
  if (!job.exchanges.empty()) {
    return compute_partition({.collective = Collective::kSend,
                              .count = job.exchanges[static_cast<size_t>(channel)].count,
                              .element_bytes = job.element_bytes,
                              .nranks = job.nranks,
                              .chunks = program.chunks,
                              .slot_bytes = payload_bytes_max(job.protocol, job.slot_bytes)});
  }
  PartitionInput part = call_of(job);
  part.chunks = program.chunks;
  part.scratch_chunks = program.scratch_chunks;
  part.divides_buffer = program.divides_buffer;
  part.messages = message_form_of(job);
  part.channel = channel;
  return compute_partition(part);
}

}  // namespace plexus
