// SPDX-License-Identifier: Apache-2.0
#include "core/join/wire_up.hpp"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Result<WireUp> wire_up_with(const Variables& variables, const Config& config = {}) {
  return wire_up(config, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

/// Task `rank` of four on two nodes, of which the first is called `first`.
Variables slurm(const std::string& first, int rank = 3) {
  return {{"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_STEP_NUM_TASKS", "4"},
          {"SLURM_STEP_NUM_NODES", "2"},
          {"SLURM_STEP_NODELIST", first + ",node08"},
          {"SLURM_JOB_ID", "12"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_LOCALID", "0"},
          {"SLURMD_NODENAME", rank == 0 ? first : "node08"}};
}

TEST(WireUp, WithoutALauncherSaysWhatToDo) {
  const auto wired = wire_up_with({});
  ASSERT_TRUE(wired.has_error());
  EXPECT_EQ(wired.error().code(), Code::kInvalidUsage);
  EXPECT_THAT(wired.error().message(), AllOf(HasSubstr("srun"), HasSubstr("MASTER_ADDR")));
}

TEST(WireUp, RanksOfASlurmStepDeriveTheSameId) {
  const WireUp one = wire_up_with(slurm("10.1.2.3", 0)).value();
  const WireUp two = wire_up_with(slurm("10.1.2.3", 3)).value();
  EXPECT_EQ(one.id.to_bytes(), two.id.to_bytes());
  EXPECT_EQ(two.rank, 3);
  EXPECT_EQ(two.nranks, 4);
  EXPECT_THAT(one.id.address.to_string(), HasSubstr("10.1.2.3:"));
  EXPECT_GE(one.id.address.port(), 20000);
  EXPECT_LE(one.id.address.port(), 31999);
  EXPECT_EQ(one.id.listener, UniqueId::Listener::kRankZeroAnywhere);
  Variables next = slurm("10.1.2.3");
  next["SLURM_STEP_ID"] = "1";
  EXPECT_NE(wire_up_with(next).value().id.secret, one.id.secret);
}

TEST(WireUp, ThePortIsOneOfThoseThatTheUserAllows) {
  Config config;
  config.port_range = "4000-4001";
  for (int step = 0; step < 20; ++step) {
    Variables variables = slurm("10.1.2.3");
    variables["SLURM_STEP_ID"] = std::to_string(step);
    const int port = wire_up_with(variables, config).value().id.address.port();
    EXPECT_TRUE(port == 4000 || port == 4001) << port;
  }
}

TEST(WireUp, OnTheNodeItselfANameThatLeadsToLoopbackIsReplaced) {
  const WireUp wired = wire_up_with(slurm("0x7f000001")).value();  // takes the place of such a name
  EXPECT_FALSE(wired.id.address.is_loopback());
  EXPECT_EQ(wired.id.listener, UniqueId::Listener::kRankZeroAnywhere);
}

TEST(WireUp, WhoSaysLoopbackMeansIt) {
  for (const char* host : {"localhost", "127.0.0.1", "::1", "127.0.0.2"}) {
    const WireUp wired =
        wire_up_with(
            {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", host}, {"MASTER_PORT", "5001"}})
            .value();
    EXPECT_TRUE(wired.id.address.is_loopback()) << host;
    EXPECT_EQ(wired.id.listener, UniqueId::Listener::kRankZero) << host;
  }
}

TEST(WireUp, ANameThatDoesNotResolveIsNamed) {
  const auto wired = wire_up_with(slurm("no-such-node.invalid"));
  ASSERT_TRUE(wired.has_error());
  EXPECT_THAT(wired.error().message(),
              AllOf(HasSubstr("rank 3 of Slurm job 12 step 0, node08"),
                    HasSubstr("'no-such-node.invalid' by SLURM_STEP_NODELIST"),
                    HasSubstr("cannot resolve"), HasSubstr("NCCL_COMM_ID")));
}

/// As srun -m arbitrary may have it.
TEST(WireUp, RankZeroThatIsNotOnTheFirstNodeIsNoticedThereAndOnItself) {
  Variables variables = slurm("10.1.2.3", 0);
  variables["SLURMD_NODENAME"] = "node08";
  EXPECT_THAT(wire_up_with(variables).error().message(),
              AllOf(HasSubstr("rank 0 of Slurm job 12 step 0, node08: the ranks look for rank 0 on "
                              "'10.1.2.3', the first node of SLURM_STEP_NODELIST, but rank 0 is on "
                              "'node08' (srun -m arbitrary"),
                    HasSubstr("--mpi=pmix"), HasSubstr("NCCL_COMM_ID")));
  variables["SLURM_PROCID"] = "1";
  EXPECT_TRUE(wire_up_with(variables).has_value());
  variables["SLURMD_NODENAME"] = "10.1.2.3";
  EXPECT_THAT(wire_up_with(variables).error().message(),
              HasSubstr("but the first rank there is 1"));
  variables["SLURM_LOCALID"] = "1";
  EXPECT_TRUE(wire_up_with(variables).has_value());
  variables["SLURM_PROCID"] = "0";
  variables["SLURMD_NODENAME"] = "node08";
  Config config;
  config.comm_id = "10.1.2.4:5000";
  EXPECT_FALSE(wire_up_with(variables, config).has_error());
  variables.insert({{"MASTER_ADDR", "10.1.2.4"}, {"MASTER_PORT", "5000"}});
  EXPECT_TRUE(wire_up_with(variables).has_value());
}

TEST(WireUp, CommIdSaysWhereIfItIsSet) {
  Config config;
  config.comm_id = "127.0.0.1:5001";
  const WireUp wired = wire_up_with(slurm("no-such-node.invalid"), config).value();
  EXPECT_EQ(wired.id.address.to_string(), "127.0.0.1:5001");
  EXPECT_EQ(wired.id.listener, UniqueId::Listener::kRankZero);
}

TEST(WireUp, ALauncherThatSaysNoAddressNamesTheRemedy) {
  const auto wired = wire_up_with({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}});
  ASSERT_TRUE(wired.has_error());
  EXPECT_EQ(wired.error().code(), Code::kInvalidUsage);
  EXPECT_THAT(wired.error().message(), HasSubstr("NCCL_COMM_ID"));
}

TEST(WireUp, AJobOfOneRankNeedsNobody) {
  const WireUp wired = wire_up_with({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).value();
  EXPECT_EQ(wired.nranks, 1);
  EXPECT_EQ(wired.id.listener, UniqueId::Listener::kMaker);
}

}  // namespace
}  // namespace plexus
