// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/layout.hpp"

#include <gtest/gtest.h>

namespace plexus::perf {
namespace {

Shape make_shape(Collective collective, int rank, int root = -1) {
  static const Traffic kTraffic(1);
  return {.collective = collective,
          .type = Type::kFloat,
          .nranks = 4,
          .rank = rank,
          .root = root,
          .count = 10,
          .in_place = false,
          .traffic = &kTraffic};
}

TEST(ComputePlaces, TheLargerSideHasABlockPerRank) {
  const auto places = [](Collective collective) {
    return compute_places(make_shape(collective, 0));
  };
  EXPECT_EQ(places(Collective::kAllGather).send_count, 10U);
  EXPECT_EQ(places(Collective::kAllGather).recv_count, 40U);
  EXPECT_EQ(places(Collective::kHyperCube).recv_count, 40U);
  EXPECT_EQ(places(Collective::kScatter).send_count, 40U);
  EXPECT_EQ(places(Collective::kScatter).recv_count, 10U);
  EXPECT_EQ(places(Collective::kAllToAll).send_count, 40U);
  EXPECT_EQ(places(Collective::kAllToAll).recv_count, 40U);
  EXPECT_EQ(places(Collective::kReduceScatter).recv_count, 10U);
  EXPECT_EQ(compute_size_bytes(make_shape(Collective::kAllGather, 0)), 160U);
  EXPECT_EQ(compute_size_bytes(make_shape(Collective::kSendRecv, 0)), 40U);
}

/// 160 B per rank, to the ranks after it in proportion 1 : 2 : 3, each rounded down to 16 B.
TEST(ComputeExpected, AllToAllVTakesWhatEachSendsFromWhereItIs) {
  const auto parts = compute_expected(make_shape(Collective::kAllToAllV, 3));
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(parts[0], (Part{Part::Kind::kStream, 0, 20, 0, 4 + 12}));
  EXPECT_EQ(parts[1], (Part{Part::Kind::kStream, 20, 12, 1, 20 + 4}));
  EXPECT_EQ(parts[2], (Part{Part::Kind::kStream, 32, 4, 2, 12 + 20}));
  EXPECT_EQ(parts[3].count, 0U);
  EXPECT_EQ(compute_size_bytes(make_shape(Collective::kAllToAllV, 3)), 144U);
}

TEST(ComputeExpected, CoversTheReceiveBufferOnceAndInOrder) {
  for (const CollectiveInfo& info : collectives()) {
    for (int rank = 0; rank < 4; ++rank) {
      const Shape shape = make_shape(info.collective, rank, info.rooted ? 2 : -1);
      size_t at = 0;
      for (const Part& part : compute_expected(shape)) {
        EXPECT_EQ(part.offset, at) << info.name;
        at += part.count;
      }
      EXPECT_EQ(at, compute_places(shape).recv_count) << info.name;
    }
  }
}

TEST(ComputeExpected, AllToAllTakesMyBlockOfEveryone) {
  const auto parts = compute_expected(make_shape(Collective::kAllToAll, 3));
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(parts[1], (Part{Part::Kind::kStream, 10, 10, 1, 30}));
}

TEST(ComputeExpected, ReduceScatterGivesMyPartOfTheResult) {
  EXPECT_EQ(compute_expected(make_shape(Collective::kReduceScatter, 2)).front(),
            (Part{Part::Kind::kResult, 0, 10, -1, 20}));
}

TEST(ComputeExpected, OnlyTheRootOfAReduceAndAGatherReceives) {
  EXPECT_EQ(compute_expected(make_shape(Collective::kReduce, 1, 1)).front().kind,
            Part::Kind::kResult);
  EXPECT_EQ(compute_expected(make_shape(Collective::kReduce, 0, 1)).front().kind,
            Part::Kind::kUntouched);
  EXPECT_EQ(compute_expected(make_shape(Collective::kGather, 0, 1)).front().kind,
            Part::Kind::kUntouched);
}

TEST(ComputeExpected, SendRecvComesFromTheRankBefore) {
  EXPECT_EQ(compute_expected(make_shape(Collective::kSendRecv, 0)).front().source, 3);
  EXPECT_EQ(compute_expected(make_shape(Collective::kSendRecv, 3)).front().source, 2);
}

TEST(ComputePlaces, InPlaceEachRankOwnsItsBlockOfTheLargerBuffer) {
  EXPECT_EQ(compute_places(make_shape(Collective::kAllGather, 3)).inner_offset, 30U);
  EXPECT_EQ(compute_places(make_shape(Collective::kReduceScatter, 3)).inner_offset, 30U);
  EXPECT_EQ(compute_places(make_shape(Collective::kAllReduce, 3)).inner_offset, 0U);
}

}  // namespace
}  // namespace plexus::perf
