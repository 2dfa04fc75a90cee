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
  EXPECT_EQ(collectives().size(), 16U);
  EXPECT_EQ(types().size(), 12U);
  EXPECT_FALSE(find_collective("allreduce"));
  EXPECT_EQ(find_collective("all_gather_perf"), Collective::kAllGather);
  EXPECT_EQ(find_collective("sendrecv_perf_mpi"), Collective::kSendRecv);
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
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllToAllV, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kHyperCube, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kGatherV, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::kPut, 4), 1);
  EXPECT_DOUBLE_EQ(alg_factor(Collective::kHyperCube, 4), 0.75);
  EXPECT_DOUBLE_EQ(alg_factor(Collective::kAllGather, 4), 1);
}

}  // namespace
}  // namespace plexus::perf
