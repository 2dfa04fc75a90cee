// SPDX-License-Identifier: Apache-2.0
// Geometry maps a program's chunk indices to elements: the spans of all chunks and loops cover a
// part exactly once, whatever its size.
#include "kernels/layout/geometry.hpp"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace plexus {
namespace {

uint64_t div_ceil(uint64_t value, uint64_t by) { return (value + by - 1) / by; }

/// A part with consecutive chunks, as for all-reduce, broadcast and reduce.
Geometry make_plain(
    uint64_t offset, uint64_t count, uint64_t chunk_count, uint32_t chunks, uint64_t granule) {
  return {.part_offset = offset,
          .part_count = count,
          .chunk_count = chunk_count,
          .last_chunk_count = last_chunk_count(count, chunk_count, chunks, granule),
          .chunks = chunks,
          .loops = static_cast<uint32_t>(div_ceil(count, chunk_count * chunks)),
          .input_stride = 0,
          .output_stride = 0,
          .blocked = false};
}

/// A part of every block: all-gather, all-to-all, ...
Geometry make_blocked(uint64_t offset, uint64_t count, uint64_t chunk_count, uint64_t stride) {
  return {.part_offset = offset,
          .part_count = count,
          .chunk_count = chunk_count,
          .last_chunk_count = 0,
          .chunks = 1,
          .loops = static_cast<uint32_t>(div_ceil(count, chunk_count)),
          .input_stride = 0,
          .output_stride = stride,
          .blocked = true};
}

/// Spans in the order of loops and chunks are consecutive and end with the part.
void expect_covers_part(const Geometry& geometry) {
  uint64_t next = geometry.part_offset;
  for (uint32_t loop = 0; loop < geometry.loops; ++loop) {
    for (uint32_t chunk = 0; chunk < geometry.chunks; ++chunk) {
      const Span span = span_of(geometry, 0, chunk, loop);
      ASSERT_EQ(span.offset, next) << "loop " << loop << " chunk " << chunk;
      ASSERT_LE(span.count, std::max(geometry.chunk_count, geometry.last_chunk_count));
      next += span.count;
    }
  }
  ASSERT_EQ(next, geometry.part_offset + geometry.part_count);
}

TEST(Geometry, SpansOfAllChunksAndLoopsCoverThePartOnce) {
  constexpr unsigned kSeed = 41;
  std::mt19937_64 random(kSeed);
  const auto between = [&](uint64_t least, uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(least, most)(random);
  };
  for (int i = 0; i < 2000; ++i) {
    const uint64_t granule = uint64_t{1} << between(0, 6);
    const uint64_t chunk_count = granule * between(1, 20);
    const Geometry geometry = make_plain(between(0, 100), between(0, 5000), chunk_count,
                                         static_cast<uint32_t>(between(1, 17)), granule);
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " case " << i);
    expect_covers_part(geometry);
    if (testing::Test::HasFatalFailure()) {
      return;
    }
  }
}

TEST(Geometry, LastLoopGivesEveryRankAShareInGranules) {
  // 1000 elements in 4 chunks of up to 1000: four chunks of 256, 256, 256 and 232 instead of one
  // full and three empty ones.
  const Geometry geometry = make_plain(0, 1000, 1000, 4, 64);
  EXPECT_EQ(geometry.loops, 1U);
  std::vector<uint64_t> counts;
  for (uint32_t chunk = 0; chunk < 4; ++chunk) {
    counts.push_back(span_of(geometry, 0, chunk, 0).count);
  }
  EXPECT_EQ(counts, (std::vector<uint64_t>{256, 256, 256, 232}));
}

TEST(Geometry, ChunksThatNothingIsLeftForAreEmptyAtTheEnd) {
  const Geometry geometry = make_plain(16, 65, 1024, 4, 64);
  EXPECT_EQ(span_of(geometry, 0, 0, 0).count, 64U);
  EXPECT_EQ(span_of(geometry, 0, 1, 0).count, 1U);
  for (uint32_t chunk = 2; chunk < 4; ++chunk) {
    EXPECT_EQ(span_of(geometry, 0, chunk, 0).count, 0U);
    EXPECT_EQ(span_of(geometry, 0, chunk, 0).offset, 16U + 65U);
  }
}

TEST(Geometry, FullLoopsHaveWholeChunks) {
  const Geometry geometry = make_plain(0, 10 * 100 * 3 + 7, 100, 3, 1);
  ASSERT_EQ(geometry.loops, 11U);
  for (uint32_t loop = 0; loop < 10; ++loop) {
    for (uint32_t chunk = 0; chunk < 3; ++chunk) {
      EXPECT_EQ(span_of(geometry, 0, chunk, loop).offset, (uint64_t{loop} * 3 + chunk) * 100);
      EXPECT_EQ(span_of(geometry, 0, chunk, loop).count, 100U);
    }
  }
  EXPECT_EQ(span_of(geometry, 0, 0, 10).count, 3U);
}

TEST(Geometry, BlocksAreCutAlikeAndLieAStrideApart) {
  const Geometry geometry = make_blocked(5, 1000, 300, 2000);
  ASSERT_EQ(geometry.loops, 4U);
  uint64_t done = 0;
  for (uint32_t loop = 0; loop < geometry.loops; ++loop) {
    const Span first = span_of(geometry, geometry.output_stride, 0, loop);
    EXPECT_EQ(first.offset, 5 + done);
    for (uint64_t block = 1; block < 8; ++block) {
      const Span span =
          span_of(geometry, geometry.output_stride, static_cast<uint32_t>(block), loop);
      EXPECT_EQ(span.offset, first.offset + block * 2000);
      EXPECT_EQ(span.count, first.count);
    }
    done += first.count;
  }
  EXPECT_EQ(done, 1000U);
}

TEST(Geometry, BufferOfOneBlockIsTheSameForEveryChunk) {
  const Geometry geometry = make_blocked(5, 1000, 300, 2000);
  for (uint32_t chunk = 0; chunk < 8; ++chunk) {
    EXPECT_EQ(span_of(geometry, geometry.input_stride, chunk, 3).offset, 5U + 900U);
    EXPECT_EQ(span_of(geometry, geometry.input_stride, chunk, 3).count, 100U);
  }
}

TEST(Geometry, CountsBeyond32BitsDoNotWrap) {
  const uint64_t count = (uint64_t{1} << 33) + 1;
  const uint64_t chunk_count = uint64_t{1} << 22;
  const Geometry plain = make_plain(0, count, chunk_count, 8, 16);
  const Span last = span_of(plain, 0, 0, plain.loops - 1);
  EXPECT_EQ(last.offset, count - 1);
  EXPECT_EQ(last.count, 1U);
  const Geometry blocked = make_blocked(0, count, chunk_count, count);
  EXPECT_EQ(span_of(blocked, count, 7, blocked.loops - 1).offset, 8 * count - 1);
}

}  // namespace
}  // namespace plexus
