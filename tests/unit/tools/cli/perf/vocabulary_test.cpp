// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/vocabulary.hpp"

#include <gtest/gtest.h>

namespace plexus::perf {
namespace {

TEST(Tables, AreIndexedByTheirOwnNumbers) {
  for (const auto& row : collectives()) {
    EXPECT_STREQ(info_of(row.collective).name, row.name);
    EXPECT_EQ(find_collective(row.name), row.collective);
  }
  for (const auto& row : types()) {
    EXPECT_STREQ(info_of(row.type).name, row.name);
    EXPECT_EQ(find_type(row.name), row.type);
  }
  for (const auto& row : ops()) {
    EXPECT_STREQ(name_of(row.op), row.name);
    EXPECT_EQ(find_op(row.name), row.op);
  }
  EXPECT_EQ(collectives().size(), 9U);
  EXPECT_EQ(types().size(), 12U);
  EXPECT_FALSE(find_collective("allreduce"));
}

TEST(ComputeCount, WholeSizeInElements) {
  EXPECT_EQ(compute_count(Collective::kAllReduce, Type::kFloat, 4, 1024), 256U);
  EXPECT_EQ(compute_count(Collective::kAllReduce, Type::kDouble, 4, 12), 1U);
  EXPECT_EQ(compute_count(Collective::kSendRecv, Type::kInt8, 4, 7), 7U);
}

TEST(ComputeCount, PartsAreRoundedDownTo16Bytes) {
  EXPECT_EQ(compute_count(Collective::kAllGather, Type::kFloat, 4, 1024), 64U);
  EXPECT_EQ(compute_count(Collective::kAllGather, Type::kFloat, 3, 1024), 84U);  // 341 B -> 336 B
  EXPECT_EQ(compute_count(Collective::kReduceScatter, Type::kFloat, 4, 32), 0U);
  EXPECT_EQ(compute_size_bytes(Collective::kAllGather, Type::kFloat, 3, 84), 1008U);
}

TEST(Counts, TheLargerSideHasABlockPerRank) {
  EXPECT_EQ(send_count(Collective::kAllGather, 4, 10), 10U);
  EXPECT_EQ(recv_count(Collective::kAllGather, 4, 10), 40U);
  EXPECT_EQ(send_count(Collective::kScatter, 4, 10), 40U);
  EXPECT_EQ(recv_count(Collective::kScatter, 4, 10), 10U);
  EXPECT_EQ(send_count(Collective::kAllToAll, 4, 10), 40U);
  EXPECT_EQ(recv_count(Collective::kAllToAll, 4, 10), 40U);
  EXPECT_EQ(recv_count(Collective::kReduceScatter, 4, 10), 10U);
}

TEST(BusFactor, IsNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllReduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kReduceScatter, 2), 0.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllToAll, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kBroadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kReduce, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kSendRecv, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllReduce, 1), 0);
}

}  // namespace
}  // namespace plexus::perf
