// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/partition.hpp"

#include <algorithm>

#include "core/base/units.hpp"
#include "guest/assert.hpp"
#include "kernels/layout/fifo.hpp"

namespace plexus {
namespace {

// A chain is a pipeline: with chunks as large as a slot, a message of few slots would pass only one
// rank at a time. A call therefore has at least this many chunks, unless they would be smaller than
// kChainChunkBytesMin.
constexpr uint64_t kChainChunks = 16;
constexpr uint64_t kChainChunkBytesMin = uint64_t{16} * 1024;

// Through memory a message costs little beside the copies that chunks need to travel together: up
// to here it is more. Over a network it costs more than copying a slot.
constexpr uint64_t kJoinedBytesInMemoryMax = uint64_t{8} * 1024;
// Fewer chunks cost no less together (2 to 8 ranks; docs/performance.md).
constexpr size_t kJoinedChunksInMemoryMin = 5;

// Largest scratch memory of one channel of a call.
constexpr uint64_t kScratchBytesMax = uint64_t{8} * 1024 * 1024;

bool is_chain(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce;
}

uint64_t input_blocks_stride(Collective collective, uint64_t count) {
  return collective == Collective::kAllGather || collective == Collective::kGather ? 0 : count;
}
uint64_t output_blocks_stride(Collective collective, uint64_t count) {
  return collective == Collective::kReduceScatter || collective == Collective::kScatter ? 0 : count;
}

uint64_t granule_of(const PartitionInput& input) {
  return std::max<uint64_t>(1, kCacheLine / input.element_bytes);
}

/// The channel's part of `count` elements. Neither two channels nor the chunks of two ranks share a
/// cache line.
Span part_of(uint64_t count, const PartitionInput& input) {
  const uint64_t even =
      align_up(div_ceil(count, static_cast<uint64_t>(input.channels)), granule_of(input));
  const uint64_t offset = std::min(count, even * static_cast<uint64_t>(input.channel));
  return {offset, std::min(even, count - offset)};
}

uint32_t count_loops(const Geometry& geometry) {
  return static_cast<uint32_t>(
      div_ceil(geometry.part_count, geometry.chunk_count * geometry.chunks));
}

}  // namespace

bool is_blocked(Collective collective) {
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
      return true;
    default:
      return false;
  }
}

uint64_t buffer_count(Collective collective, uint64_t count, int nranks) {
  return is_blocked(collective) ? count * static_cast<uint64_t>(nranks) : count;
}

int compute_message_channels(uint64_t size_bytes, int channels_max) {
  PLEXUS_DCHECK(channels_max > 0, channels_max);
  return static_cast<int>(std::clamp<uint64_t>(size_bytes / kMessagePartBytesMin, 1,
                                               static_cast<uint64_t>(channels_max)));
}

Geometry compute_partition(const PartitionInput& call) {
  PLEXUS_DCHECK(call.channel >= 0 && call.channel < call.channels, call.channel, call.channels);
  PLEXUS_DCHECK(call.nranks > 0 && call.chunks > 0, call.nranks, call.chunks);
  Geometry geometry{};
  PartitionInput input = call;
  if (call.divides_buffer) {
    input.count =
        buffer_count(call.collective, call.count, call.nranks) / static_cast<uint64_t>(call.chunks);
  }
  const Span part = part_of(input.count, input);
  geometry.part_offset = part.offset;
  geometry.part_count = part.count;
  geometry.blocked = input.divides_buffer || (is_blocked(input.collective) && input.nranks > 1);
  geometry.chunks = geometry.blocked ? 1 : static_cast<uint32_t>(input.chunks);

  uint64_t chunk_bytes = input.slot_bytes;
  if (is_chain(input.collective) && input.nranks > 2) {
    const uint64_t wish = div_ceil(geometry.part_count * input.element_bytes, kChainChunks);
    chunk_bytes = std::clamp(align_up(wish, kCacheLine),
                             std::min<uint64_t>(kChainChunkBytesMin, chunk_bytes), chunk_bytes);
  }
  if (input.scratch_chunks > 0) {
    const auto most = kScratchBytesMax / static_cast<uint64_t>(input.scratch_chunks);
    chunk_bytes =
        std::min(chunk_bytes, std::max<uint64_t>(most / kCacheLine * kCacheLine, kCacheLine));
  }
  if (input.messages.chunks > 1) {
    const uint64_t most = input.slot_bytes / input.messages.chunks;
    chunk_bytes = std::min(chunk_bytes, most < kCacheLine ? most : most / kCacheLine * kCacheLine);
  }
  geometry.chunk_count = std::max<uint64_t>(1, chunk_bytes / input.element_bytes);
  geometry.last_chunk_count =
      last_chunk_count(geometry.part_count, geometry.chunk_count, geometry.chunks,
                       input.messages.evenly ? 1 : granule_of(input));
  if (input.divides_buffer) {
    geometry.input_stride = input.count;
    geometry.output_stride = input.count;
  } else if (geometry.blocked) {
    geometry.input_stride = input_blocks_stride(input.collective, input.count);
    geometry.output_stride = output_blocks_stride(input.collective, input.count);
  }
  geometry.loops = count_loops(geometry);
  return geometry;
}

BlockedPartition compute_partition(const PartitionInput& input,
                                   std::span<const uint64_t> counts,
                                   std::span<const uint64_t> displacements) {
  PLEXUS_DCHECK(!input.divides_buffer && counts.size() == displacements.size(), counts.size());
  const bool gathers = input.collective == Collective::kAllGather;
  BlockedPartition made{.geometry = compute_partition(input), .blocks = {}};
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    const Span part = part_of(counts[rank], input);
    const uint64_t among_all = displacements[rank] + part.offset;
    made.blocks.push_back({.input = gathers ? part.offset : among_all,
                           .output = gathers ? among_all : part.offset,
                           .count = part.count});
    // a shorter block may have the longer part
    made.geometry.part_count = std::max(made.geometry.part_count, part.count);
  }
  made.geometry.loops = count_loops(made.geometry);
  return made;
}

MessageForm message_form_of(const MessageInput& input, const PartitionInput& call) {
  const RecordedAlgorithm* const recorded = input.algorithm->recorded;
  const size_t chunks =
      call.nranks < 2 ? 1 : static_cast<size_t>(chunks_of_message(*input.algorithm, call.nranks));
  // A file whose programs are not proved with a message for each chunk has this form only.
  MessageForm apart;
  apart.chunks = recorded != nullptr && recorded->apart.empty() ? chunks : 1;
  const bool is_few = input.in_memory && !input.on_device && chunks < kJoinedChunksInMemoryMin;
  if (chunks == 1 || is_few || (input.on_device && uses_lines(input.protocol))) {
    return apart;
  }
  const MessageForm joined = {.joins = true, .chunks = chunks, .evenly = !input.in_memory};
  PartitionInput first = call;  // no channel has more
  first.channel = 0;
  first.chunks = recorded != nullptr ? recorded->programs.front().chunks
                                     : input.algorithm->chunks(call.nranks);
  first.divides_buffer = recorded != nullptr;
  first.messages = joined;
  const Geometry geometry = compute_partition(first);
  const uint64_t count = geometry.blocked
                             ? chunks * geometry.part_count
                             : std::min(chunks * geometry.last_chunk_count, geometry.part_count);
  const uint64_t most = input.in_memory
                            ? std::min<uint64_t>(call.slot_bytes, kJoinedBytesInMemoryMax)
                            : call.slot_bytes;
  return geometry.loops == 1 && count * call.element_bytes <= most ? joined : apart;
}

}  // namespace plexus
