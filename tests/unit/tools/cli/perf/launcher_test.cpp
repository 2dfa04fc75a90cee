// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/launcher.hpp"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::perf {
namespace {

using Variables = std::map<std::string, std::string>;

Result<std::optional<LaunchedRank>> find(const Variables& variables) {
  return find_launched_rank(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      "77-1234");
}

TEST(FindLaunchedRank, NothingWithoutALauncher) { EXPECT_FALSE(find({}).value()); }

TEST(FindLaunchedRank, OpenMpi) {
  const auto rank = find({{"OMPI_COMM_WORLD_RANK", "2"},
                          {"OMPI_COMM_WORLD_SIZE", "4"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                          {"PMIX_NAMESPACE", "123"}})
                        .value();
  ASSERT_TRUE(rank);
  EXPECT_EQ(rank->launcher, "Open MPI");
  EXPECT_EQ(rank->rank, 2);
  EXPECT_EQ(rank->nranks, 4);
  EXPECT_EQ(rank->nranks_on_host, 4);
  EXPECT_EQ(rank->job, "Open MPI 123");
  EXPECT_EQ(rank->rendezvous, "");
}

TEST(FindLaunchedRank, PmiIsKeyedByTheParent) {
  const auto rank = find({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "1"}}).value();
  ASSERT_TRUE(rank);
  EXPECT_EQ(rank->job, "PMI 77-1234");
  EXPECT_EQ(rank->nranks_on_host, 1);
}

TEST(FindLaunchedRank, TorchrunUsesThePortAfterItsOwn) {
  const auto rank = find({{"RANK", "1"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "node0"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "x"}})
                        .value();
  ASSERT_TRUE(rank);
  EXPECT_EQ(rank->launcher, "torchrun");
  EXPECT_EQ(rank->rendezvous, "node0:29501");
}

TEST(FindLaunchedRank, Ipv6MasterGetsBrackets) {
  const auto rank =
      find({{"RANK", "1"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "fe80::1"}, {"MASTER_PORT", "5"}})
          .value();
  ASSERT_TRUE(rank);
  EXPECT_EQ(rank->rendezvous, "[fe80::1]:5");
}

TEST(FindLaunchedRank, SlurmStepButNotItsBatchScript) {
  Variables variables = {
      {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_JOB_ID", "9"}};
  EXPECT_FALSE(find(variables).value());
  variables["SLURM_STEP_ID"] = "3";
  variables["SLURM_STEP_NUM_NODES"] = "1";
  const auto rank = find(variables).value();
  ASSERT_TRUE(rank);
  EXPECT_EQ(rank->job, "Slurm 9 3");
  EXPECT_EQ(rank->nranks_on_host, 2);
}

TEST(FindLaunchedRank, CommIdIsARendezvous) {
  const auto rank = find({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"NCCL_COMM_ID", "h:9"}}).value();
  ASSERT_TRUE(rank);
  EXPECT_EQ(rank->rendezvous, "h:9");
}

TEST(FindLaunchedRank, SaysWhichVariableIsWrong) {
  EXPECT_THAT(find({{"PMI_RANK", "0"}}).error().message(), ::testing::HasSubstr("PMI_SIZE"));
  EXPECT_THAT(find({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}).error().message(),
              ::testing::HasSubstr("PMI_RANK"));
  EXPECT_THAT(find({{"PMI_RANK", "x"}, {"PMI_SIZE", "2"}}).error().message(),
              ::testing::HasSubstr("'x'"));
}

TEST(DescribeParent, StaysTheSame) {
  EXPECT_FALSE(describe_parent().empty());
  EXPECT_EQ(describe_parent(), describe_parent());
}

}  // namespace
}  // namespace plexus::perf
