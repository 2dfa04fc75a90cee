// SPDX-License-Identifier: Apache-2.0
// The channel parts cover every call exactly once, and chunks fit in the slots.
#include "core/tuning/partition.hpp"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace plexus {
namespace {

constexpr uint32_t kSlot = 128 * 1024;

PartitionInput input_of(
    Collective collective, uint64_t count, uint32_t element_bytes, int channels, int chunks) {
  return {.collective = collective,
          .count = count,
          .element_bytes = element_bytes,
          .nranks = 4,
          .chunks = chunks,
          .channel = 0,
          .channels = channels,
          .slot_bytes = kSlot};
}

/// The parts of all channels are consecutive and end with the call.
void expect_covers(PartitionInput input) {
  uint64_t next = 0;
  for (input.channel = 0; input.channel < input.channels; ++input.channel) {
    const Geometry geometry = compute_partition(input);
    ASSERT_EQ(geometry.part_offset, next);
    ASSERT_LE(geometry.chunk_count * input.element_bytes, input.slot_bytes);
    ASSERT_GE(geometry.chunk_count, 1U);
    next += geometry.part_count;
    uint64_t covered = 0;
    for (uint32_t loop = 0; loop < geometry.loops; ++loop) {
      for (uint32_t chunk = 0; chunk < geometry.chunks; ++chunk) {
        const Span span = span_of(geometry, 0, geometry.blocked ? 0 : chunk, loop);
        ASSERT_LE(span.count * input.element_bytes, input.slot_bytes);
        covered += span.count;
      }
    }
    ASSERT_EQ(covered, geometry.part_count);
  }
  ASSERT_EQ(next, input.count);
}

TEST(Partition, CoversBlocksWithCountsOfTheirOwn) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 500; ++i) {
    std::vector<uint64_t> counts(5);
    std::vector<uint64_t> displacements(5);
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      counts[rank] = random() % (1U << (random() % 20));
      displacements[rank] = random() % 1000;
    }
    const bool gathers = i % 2 == 0;
    PartitionInput input =
        input_of(gathers ? Collective::kAllGather : Collective::kReduceScatter,
                 *std::max_element(counts.begin(), counts.end()), 4, 1 + i % 4, 5);
    std::vector<uint64_t> next(5, 0);
    for (input.channel = 0; input.channel < input.channels; ++input.channel) {
      const auto [geometry, blocks] = compute_partition(input, counts, displacements);
      for (size_t rank = 0; rank < blocks.size(); ++rank) {
        EXPECT_EQ(gathers ? blocks[rank].input : blocks[rank].output, next[rank]);
        EXPECT_EQ(gathers ? blocks[rank].output : blocks[rank].input,
                  next[rank] + displacements[rank]);
        EXPECT_LE(blocks[rank].count, geometry.loops * geometry.chunk_count) << "what loops carry";
        next[rank] += blocks[rank].count;
      }
    }
    EXPECT_EQ(next, counts);
  }
}

TEST(Partition, CoversEveryCallOnceAndFitsSlots) {
  std::mt19937_64 random(7);
  const auto between = [&](uint64_t low, uint64_t high) {
    return std::uniform_int_distribution(low, high)(random);
  };
  for (int i = 0; i < 2000; ++i) {
    const auto collective = static_cast<Collective>(between(0, 7));
    PartitionInput input =
        input_of(collective, between(0, 1 << between(0, 22)), 1U << between(0, 3),
                 static_cast<int>(between(1, 8)), static_cast<int>(between(1, 8)));
    input.slot_bytes = static_cast<uint32_t>(64U << between(0, 14));
    SCOPED_TRACE(testing::Message()
                 << "case " << i << ": " << name(collective) << " of " << input.count);
    expect_covers(input);
    if (testing::Test::HasFatalFailure()) {
      return;
    }
  }
}

TEST(Partition, HasNoLoopsForNothing) {
  const Geometry geometry = compute_partition(input_of(Collective::kAllReduce, 0, 4, 1, 4));
  EXPECT_EQ(geometry.loops, 0U);
  EXPECT_EQ(geometry.part_count, 0U);
}

TEST(Partition, KeepsCountsAbove32Bits) {
  const uint64_t count = (uint64_t{1} << 33) + 5;
  const Geometry geometry = compute_partition(input_of(Collective::kAllReduce, count, 1, 1, 4));
  EXPECT_EQ(geometry.part_count, count);
  EXPECT_EQ(geometry.loops, count / (uint64_t{4} * kSlot) + 1);
}

TEST(Partition, StartsChannelsOnCacheLines) {
  PartitionInput input = input_of(Collective::kAllReduce, 1000, 2, 3, 4);
  for (input.channel = 0; input.channel < 3; ++input.channel) {
    EXPECT_EQ(compute_partition(input).part_offset * 2 % 64, 0U);
  }
}

TEST(Partition, StridesFollowTheBuffersOfTheCollective) {
  const auto strides = [](Collective collective) {
    const Geometry geometry = compute_partition(input_of(collective, 100, 4, 1, 1));
    return std::pair(geometry.input_stride, geometry.output_stride);
  };
  EXPECT_EQ(strides(Collective::kAllGather), std::pair(uint64_t{0}, uint64_t{100}));
  EXPECT_EQ(strides(Collective::kReduceScatter), std::pair(uint64_t{100}, uint64_t{0}));
  EXPECT_EQ(strides(Collective::kAllToAll), std::pair(uint64_t{100}, uint64_t{100}));
  EXPECT_EQ(strides(Collective::kGather), std::pair(uint64_t{0}, uint64_t{100}));
  EXPECT_EQ(strides(Collective::kScatter), std::pair(uint64_t{100}, uint64_t{0}));
}

TEST(Partition, CutsAChainIntoEnoughChunksToPipeline) {
  const Geometry geometry =
      compute_partition(input_of(Collective::kBroadcast, 512 * 1024, 1, 1, 1));
  EXPECT_EQ(geometry.loops, 16U);
  EXPECT_EQ(compute_partition(input_of(Collective::kBroadcast, 16 * 1024, 1, 1, 1)).loops, 1U);
}

TEST(Partition, MessagesOfSeveralChunksFitASlot) {
  for (const size_t chunks : {2, 3, 7, 1000}) {
    for (const uint64_t count : {1, 100, 100'000}) {
      PartitionInput input = input_of(Collective::kAllGather, count, 4, 1, 4);
      input.messages.chunks = chunks;
      const Geometry geometry = compute_partition(input);
      EXPECT_LE(chunks * geometry.chunk_count * input.element_bytes, input.slot_bytes);
      EXPECT_GE(geometry.chunk_count * geometry.loops, count);
    }
  }
}

TEST(MessageForm, JoinsChunksWhereTheLongestMessageIsShort) {
  const auto joins = [](const char* name, Collective collective, uint64_t bytes, int nranks,
                        MessageInput place) {
    PartitionInput call = input_of(collective, bytes / 4, 4, 1, 4);
    call.nranks = nranks;
    place.algorithm = find_algorithm(name);
    return message_form_of(place, call).joins;
  };
  // Bruck's longest message of 16 ranks has 8 blocks.
  constexpr Collective kGather = Collective::kAllGather;
  EXPECT_TRUE(joins("bruck_all_gather", kGather, kSlot / 8, 16, {}));
  EXPECT_FALSE(joins("bruck_all_gather", kGather, kSlot / 8 + 64, 16, {}));
  EXPECT_TRUE(joins("bruck_all_gather", kGather, 1024, 16, {.in_memory = true}));
  EXPECT_FALSE(joins("bruck_all_gather", kGather, 1088, 16, {.in_memory = true}));
  EXPECT_FALSE(joins("ring_all_gather", kGather, 8, 16, {}));
  EXPECT_FALSE(joins("bruck_all_gather", kGather, 8, 1, {}));
  EXPECT_FALSE(joins("bruck_all_gather", kGather, 8, 2, {})) << "each message has one chunk";
  // Chunks of an all-reduce have a cache line each, but a message no more than the call.
  EXPECT_TRUE(joins("halving_doubling_all_reduce", Collective::kAllReduce, 8192, 1024,
                    {.in_memory = true}));
  // With 8 ranks a message has 4 chunks: in memory those cost as much alone.
  EXPECT_FALSE(joins("bruck_all_gather", kGather, 8, 8, {.in_memory = true}));
  EXPECT_TRUE(joins("bruck_all_gather", kGather, 8, 8, {.in_memory = true, .on_device = true}));
  EXPECT_TRUE(joins("bruck_all_gather", kGather, 8, 8, {}));
  const MessageInput lines{.protocol = Protocol::kLL, .on_device = true};
  EXPECT_FALSE(joins("bruck_all_gather", kGather, 8, 16, lines));
}

TEST(MessageForm, LongestMessageIsThatOfAllRanks) {
  const auto chunks = [](const char* name, int nranks, uint64_t count) {
    PartitionInput call = input_of(Collective::kAllReduce, count, 4, 1, 4);
    call.nranks = nranks;
    return message_form_of({.algorithm = find_algorithm(name)}, call).chunks;
  };
  // with 3 ranks only a left-over one and its partner have messages of 2 chunks
  EXPECT_EQ(chunks("halving_doubling_all_reduce", 3, 2), 2U);
  EXPECT_EQ(chunks("halving_doubling_all_reduce", 3, kSlot), 1U) << "they go alone";
  EXPECT_EQ(chunks("halving_doubling_all_reduce", 1, 2), 1U);
  EXPECT_EQ(chunks("ring_all_reduce", 3, 2), 1U);
}

/// Chunks of less than a cache line, which do not fit when each has one of its own.
TEST(MessageForm, JoinsChunksThatFitASlotToTheElement) {
  PartitionInput call = input_of(Collective::kAllReduce, 8192, 4, 1, 4);
  call.nranks = 1024;
  call.slot_bytes = 16'384;  // for the 512 chunks of the longest message
  const Algorithm* const halving = find_algorithm("halving_doubling_all_reduce");
  EXPECT_TRUE(message_form_of({.algorithm = halving}, call).joins);
  call.count = 8193;
  EXPECT_FALSE(message_form_of({.algorithm = halving}, call).joins);
}

TEST(MessageForm, DividesTheLastLoopToTheElementOverANetworkOnly) {
  const Algorithm* const bruck = find_algorithm("bruck_all_gather");
  PartitionInput call = input_of(Collective::kAllGather, 2, 4, 1, 4);
  call.nranks = 16;
  EXPECT_TRUE(message_form_of({.algorithm = bruck}, call).evenly);
  EXPECT_FALSE(message_form_of({.algorithm = bruck, .in_memory = true}, call).evenly);
}

TEST(MessageChannels, HaveLongPartsAndAtLeastOne) {
  constexpr uint64_t kPart = kMessagePartBytesMin;
  EXPECT_EQ(compute_message_channels(0, 4), 1);
  EXPECT_EQ(compute_message_channels(2 * kPart - 1, 4), 1);
  EXPECT_EQ(compute_message_channels(2 * kPart, 4), 2);
  EXPECT_EQ(compute_message_channels(4 * kPart - 1, 4), 3);
  EXPECT_EQ(compute_message_channels(uint64_t{1} << 40, 4), 4);
  EXPECT_EQ(compute_message_channels(uint64_t{1} << 40, 1), 1);
}

TEST(MessageChannels, BeginAtTheSameBytesForAllTypes) {
  for (const uint64_t bytes : {kMessagePartBytesMin * 3, kMessagePartBytesMin * 3 + 8,
                               kMessagePartBytesMin * 64 + 24, uint64_t{1} << 30}) {
    for (const int most : {2, 3, 7, 64}) {
      const int channels = compute_message_channels(bytes, most);
      PartitionInput whole = input_of(Collective::kSend, bytes, 1, channels, 1);
      PartitionInput wide = input_of(Collective::kRecv, bytes / 8, 8, channels, 1);
      for (int channel = 0; channel < channels; ++channel) {
        whole.channel = wide.channel = channel;
        const Geometry one = compute_partition(whole);
        const Geometry other = compute_partition(wide);
        EXPECT_EQ(one.part_offset, other.part_offset * 8);
        EXPECT_EQ(one.part_count, other.part_count * 8);
        EXPECT_GT(one.part_count, 0U);
      }
    }
  }
}

TEST(Partition, ChunksThatDivideABufferLieSideBySideInBoth) {
  PartitionInput input = input_of(Collective::kAllReduce, 4096, 4, 1, 8);
  input.divides_buffer = true;
  const Geometry divided = compute_partition(input);
  EXPECT_TRUE(divided.blocked);
  EXPECT_EQ(divided.part_count, 512U);
  EXPECT_EQ(divided.input_stride, 512U);
  EXPECT_EQ(divided.output_stride, 512U);
  input.collective = Collective::kAllGather;
  input.divides_buffer = false;
  input.count = 4096;
  const Geometry blocks = compute_partition(input);
  EXPECT_EQ(blocks.input_stride, 0U) << "one block";
  EXPECT_EQ(blocks.output_stride, 4096U);
}

TEST(Partition, AChainOfManyRanksPassesOnSmallerChunks) {
  PartitionInput input = input_of(Collective::kBroadcast, 256 * 1024, 1, 1, 1);
  input.nranks = 2;  // nobody passes on anything
  EXPECT_EQ(compute_partition(input).chunk_count, kSlot);
  input.nranks = 3;
  EXPECT_EQ(compute_partition(input).chunk_count, 16U * 1024);
  input.collective = Collective::kAllReduce;
  EXPECT_EQ(compute_partition(input).chunk_count, kSlot);
}

TEST(Partition, ScratchOfAChannelHasEightMebibytesAndChunksOfACacheLineAtLeast) {
  PartitionInput input = input_of(Collective::kAllReduce, uint64_t{1} << 24, 1, 1, 1);
  for (const auto& [chunks, bytes] :
       {std::pair(0, 131'072U), std::pair(64, 131'072U), std::pair(65, 129'024U),
        std::pair(100, 83'840U), std::pair(131'072, 64U), std::pair(200'000, 64U)}) {
    input.scratch_chunks = chunks;
    EXPECT_EQ(compute_partition(input).chunk_count, bytes) << chunks;
  }
}

TEST(Partition, ChunksThatTravelTogetherShareASlotByCacheLinesWhereTheyHaveSome) {
  PartitionInput input = input_of(Collective::kAllReduce, uint64_t{1} << 24, 1, 1, 1);
  for (const auto& [chunks, bytes] :
       {std::pair(1U, 131'072U), std::pair(2U, 65'536U), std::pair(3U, 43'648U),
        std::pair(2048U, 64U), std::pair(4000U, 32U), std::pair(1U << 20, 1U)}) {
    input.messages.chunks = chunks;
    EXPECT_EQ(compute_partition(input).chunk_count, bytes) << chunks;
  }
}

TEST(Partition, ChunksOfAChainAreWholeCacheLinesWithinBounds) {
  PartitionInput input = input_of(Collective::kReduce, 16 * 20'000, 1, 1, 1);
  EXPECT_EQ(compute_partition(input).chunk_count, 20'032U);
  input.count = 16 * 20'032;
  EXPECT_EQ(compute_partition(input).chunk_count, 20'032U);
  EXPECT_EQ(compute_partition(input_of(Collective::kReduce, 16 * 5'000, 4, 1, 1)).chunk_count,
            5'008U);
  input.count = 1000;
  EXPECT_EQ(compute_partition(input).chunk_count, 16'384U);
  input.slot_bytes = 4096;
  EXPECT_EQ(compute_partition(input).chunk_count, 4096U);
  input.slot_bytes = kSlot;
  input.count = uint64_t{1} << 30;
  EXPECT_EQ(compute_partition(input).chunk_count, kSlot);
}

TEST(Partition, ChannelsAndChunksOfRanksShareNoCacheLine) {
  PartitionInput input = input_of(Collective::kAllReduce, 1000, 4, 3, 4);
  const Geometry geometry = compute_partition(input);
  EXPECT_EQ(geometry.part_count, 336U);       // 1000 / 3, in lines of 16
  EXPECT_EQ(geometry.last_chunk_count, 96U);  // 336 / 4, in lines of 16
  input.messages.evenly = true;
  EXPECT_EQ(compute_partition(input).last_chunk_count, 84U);
  input.channel = 2;
  EXPECT_EQ(compute_partition(input).part_count, 328U);
  input = input_of(Collective::kAllReduce, 5, 128, 3, 4);
  EXPECT_EQ(compute_partition(input).part_count, 2U) << "elements longer than a line";
}

TEST(Partition, OneRankHasNoBlocks) {
  PartitionInput input = input_of(Collective::kAllGather, 100, 4, 1, 4);
  EXPECT_TRUE(compute_partition(input).blocked);
  EXPECT_EQ(compute_partition(input).chunks, 1U);
  input.nranks = 1;
  EXPECT_FALSE(compute_partition(input).blocked);
  EXPECT_EQ(compute_partition(input).chunks, 4U);
  EXPECT_EQ(buffer_count(Collective::kAllGather, 100, 4), 400U);
  EXPECT_EQ(buffer_count(Collective::kAllReduce, 100, 4), 100U);
}

}  // namespace
}  // namespace plexus
