// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/layout.hpp"

#include <gtest/gtest.h>

namespace plexus::perf {
namespace {

Shape make_shape(Collective collective, int rank, int root = -1) {
  return {.collective = collective,
          .type = Type::kFloat,
          .nranks = 4,
          .rank = rank,
          .root = root,
          .count = 10,
          .in_place = false};
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
