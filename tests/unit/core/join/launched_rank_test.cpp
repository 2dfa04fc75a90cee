// SPDX-License-Identifier: Apache-2.0
#include "core/join/launched_rank.hpp"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Variables = std::map<std::string, std::string>;

Result<std::optional<LaunchedRank>> find(const Variables& variables) {
  return find_launched_rank([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string error_of(const Variables& variables) {
  const auto found = find(variables);
  return found.has_error() ? found.error().message() : "";
}

/// What srun sets in task 3 of four on two nodes.
Variables slurm() {
  return {{"SLURM_PROCID", "3"},         {"SLURM_STEP_NUM_TASKS", "4"},
          {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_NODELIST", "node[07-08]"},
          {"SLURM_JOB_ID", "12"},        {"SLURM_STEP_ID", "0"},
          {"SLURMD_NODENAME", "node08"}};
}

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

TEST(FindLaunchedRank, NothingWithoutALauncher) { EXPECT_FALSE(find({}).value()); }

TEST(FindLaunchedRank, OpenMpi) {
  const auto rank = find({{"OMPI_COMM_WORLD_RANK", "2"},
                          {"OMPI_COMM_WORLD_SIZE", "4"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"PMIX_RANK", "2"},
                          {"PMIX_NAMESPACE", "123"}})
                        .value();
  ASSERT_TRUE(rank);
  EXPECT_EQ(rank->launcher, "Open MPI");
  EXPECT_THAT(rank->job, HasSubstr("Open MPI job 123, "));
  EXPECT_EQ(rank->rank, 2);
  EXPECT_EQ(rank->nranks, 4);
  EXPECT_FALSE(rank->one_host);
  EXPECT_TRUE(rank->has_pmix);
  EXPECT_EQ(rank->host, "");
}

TEST(FindLaunchedRank, OfOpenMpiOnOneHostRankZeroIsOnLoopback) {
  const Variables variables = {{"OMPI_COMM_WORLD_RANK", "2"},
                               {"OMPI_COMM_WORLD_SIZE", "4"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                               {"PMIX_NAMESPACE", "123"}};
  const auto rank = find(variables).value();
  EXPECT_EQ(rank->host, "127.0.0.1");
  EXPECT_FALSE(rank->has_pmix);  // no PMIX_RANK
  EXPECT_NE(rank->key, find(with(variables, "PMIX_NAMESPACE", "124")).value()->key);
}

TEST(FindLaunchedRank, PmiPassesOnWhatNoAddressSays) {
  const auto rank = find({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"PMI_FD", "9"}}).value();
  ASSERT_TRUE(rank);
  EXPECT_TRUE(rank->has_pmi);
  EXPECT_FALSE(find({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}).value()->has_pmi);
}

TEST(FindLaunchedRank, OfPmiOnOneHostThereIsNoAddressSinceItsJobsHaveNoNames) {
  const auto rank = find({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}}).value();
  EXPECT_TRUE(rank->one_host);
  EXPECT_EQ(rank->host, "");
}

TEST(FindLaunchedRank, PmixAloneDoesNotSayHowManyRanks) {
  const auto rank = find({{"PMIX_RANK", "5"}, {"PMIX_NAMESPACE", "slurm.pmix.3.0"}}).value();
  ASSERT_TRUE(rank);
  EXPECT_EQ(rank->rank, 5);
  EXPECT_EQ(rank->nranks, 0);
  EXPECT_TRUE(rank->has_pmix);
}

TEST(FindLaunchedRank, TorchrunUsesThePortAfterItsOwnAndIgnoresOuterLaunchers) {
  const Variables variables = {{"RANK", "1"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "node0"},
                               {"MASTER_PORT", "29500"},
                               {"TORCHELASTIC_RUN_ID", "x"},
                               {"TORCHELASTIC_RESTART_COUNT", "0"},
                               {"PMI_RANK", "0"},
                               {"PMI_SIZE", "2"},
                               {"PMI_FD", "9"},
                               {"PMIX_RANK", "0"},
                               {"PMIX_NAMESPACE", "y"}};
  const auto rank = find(variables).value();
  ASSERT_TRUE(rank);
  EXPECT_EQ(rank->launcher, "torchrun");
  EXPECT_EQ(rank->rank, 1);
  EXPECT_EQ(rank->host, "node0");
  EXPECT_EQ(rank->port, 29501);
  EXPECT_FALSE(rank->has_pmi || rank->has_pmix);
  EXPECT_NE(rank->key, find(with(variables, "TORCHELASTIC_RESTART_COUNT", "1")).value()->key);
}

TEST(FindLaunchedRank, VariablesSetByHandNeedAnAddress) {
  Variables variables = {{"RANK", "1"}, {"WORLD_SIZE", "8"}};
  EXPECT_FALSE(find(variables).value());
  variables["MASTER_ADDR"] = "fe80::1";
  EXPECT_THAT(error_of(variables), HasSubstr("not MASTER_PORT"));
  variables["MASTER_PORT"] = "5";
  const auto rank = find(variables).value();
  ASSERT_TRUE(rank);
  EXPECT_EQ(rank->host, "fe80::1");
  EXPECT_EQ(rank->port, 5);
}

TEST(FindLaunchedRank, SlurmStep) {
  const auto rank = find(slurm()).value();
  ASSERT_TRUE(rank);
  EXPECT_EQ(rank->launcher, "Slurm");
  EXPECT_EQ(rank->job, "Slurm job 12 step 0, node08");
  EXPECT_EQ(rank->rank, 3);
  EXPECT_EQ(rank->nranks, 4);
  EXPECT_FALSE(rank->one_host);
  EXPECT_EQ(rank->host, "node07");
  EXPECT_EQ(rank->source, "SLURM_STEP_NODELIST");
  EXPECT_EQ(rank->port, 0);
  for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID"}) {
    EXPECT_NE(rank->key, find(with(slurm(), name, "77")).value()->key) << name;
  }
  EXPECT_EQ(rank->key, find(with(slurm(), "SLURM_PROCID", "1")).value()->key);
  EXPECT_EQ(rank->key, find(with(slurm(), "SLURMD_NODENAME", "node07")).value()->key);
}

TEST(FindLaunchedRank, AStepOnOneNodeMeetsOnLoopback) {
  const auto rank = find(with(slurm(), "SLURM_STEP_NUM_NODES", "1")).value();
  EXPECT_TRUE(rank->one_host);
  EXPECT_EQ(rank->host, "127.0.0.1");
}

TEST(FindLaunchedRank, AnAddressThatTheUserGivesIsTakenBeforeTheNodeList) {
  const auto rank =
      find(with(with(slurm(), "MASTER_ADDR", "10.0.0.1"), "MASTER_PORT", "77")).value();
  EXPECT_EQ(rank->host, "10.0.0.1");
  EXPECT_EQ(rank->port, 77);
}

TEST(FindLaunchedRank, BatchScriptsAndInteractiveShellsOfSlurmAreNoRanks) {
  Variables script = slurm();
  script.erase("SLURM_STEP_ID");
  EXPECT_FALSE(find(script).value());
  EXPECT_FALSE(find(with(slurm(), "SLURM_STEP_ID", "4294967290")).value());  // interactive
  EXPECT_FALSE(find(with(slurm(), "SLURM_STEP_ID", "")).value());
}

TEST(FindLaunchedRank, AProgramOfMpiInASlurmJobIsARankOfThatProgram) {
  Variables variables = slurm();
  variables.insert({{"OMPI_COMM_WORLD_RANK", "1"},
                    {"OMPI_COMM_WORLD_SIZE", "2"},
                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                    {"PMIX_RANK", "1"},
                    {"PMIX_NAMESPACE", "5"}});
  const auto rank = find(variables).value();
  EXPECT_EQ(rank->rank, 1);
  EXPECT_EQ(rank->job, "Open MPI job 5 in Slurm job 12 step 0, node08");
}

TEST(FindLaunchedRank, SaysWhichVariableIsWrong) {
  EXPECT_THAT(error_of({{"PMI_RANK", "0"}}), HasSubstr("PMI_SIZE"));
  EXPECT_THAT(error_of({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}), HasSubstr("PMI_RANK='2'"));
  EXPECT_THAT(error_of({{"PMI_RANK", "x"}, {"PMI_SIZE", "2"}}), HasSubstr("'x'"));
  for (const char* value :
       {"", " 3", "3 ", "+3", "-1", "0x1", "3.0", "99999999999999999999", "4"}) {
    EXPECT_THAT(error_of(with(slurm(), "SLURM_PROCID", value)), HasSubstr("SLURM_PROCID")) << value;
  }
  EXPECT_THAT(error_of(with(slurm(), "SLURM_STEP_NUM_TASKS", "0")), HasSubstr("NUM_TASKS='0'"));
  const Variables hand = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}};
  for (const char* port : {"0", "65535", "ssh", ""}) {
    EXPECT_THAT(error_of(with(hand, "MASTER_PORT", port)), HasSubstr("MASTER_PORT")) << port;
  }
}

TEST(FindLaunchedRank, RefusesHostsThatAreNone) {
  for (const std::string& host :
       {std::string("a b"), std::string("-h"), std::string("a;b"), std::string("a\nb"),
        std::string(300, 'a'), std::string("a/b"), std::string("\xc3\xa9")}) {
    EXPECT_THAT(error_of(with(with(slurm(), "MASTER_ADDR", host), "MASTER_PORT", "7")),
                HasSubstr("MASTER_ADDR"));
  }
}

TEST(FindLaunchedRank, NamesFromOutsideAreShownShortAndWithoutControlCharacters) {
  const auto rank = find(with(with(slurm(), "SLURM_JOB_ID", "\x1b[2J" + std::string(5000, 'j')),
                              "SLURMD_NODENAME", "a\nb"))
                        .value();
  EXPECT_THAT(rank->job, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\n")), HasSubstr("a?b")));
  EXPECT_LT(rank->job.size(), 300u);
}

TEST(FirstOfNodeList, IsTheFirstName) {
  const Variables lists = {{"node1", "node1"},
                           {"node1,node2", "node1"},
                           {"node[1-2]", "node1"},
                           {"node[007-012,020],x", "node007"},
                           {"node[3,5-7]", "node3"},
                           {"b-gpu[10]", "b-gpu10"},
                           {"rack[2-3]n[01-16]", "rack2n01"},
                           {"a[1-2].site.org,b", "a1.site.org"},
                           {"x_1", "x_1"}};
  for (const auto& [list, first] : lists) {
    EXPECT_EQ(first_of_node_list(list).value(), first) << list;
  }
}

TEST(FirstOfNodeList, RefusesWhatIsNone) {
  for (const std::string& list :
       {std::string(), std::string(","), std::string("[1-2"), std::string("a[]"),
        std::string("a[-2]"), std::string("a[x]"), std::string("a["), std::string("a]"),
        std::string("a b"), std::string("$(reboot)"), std::string("-a"), std::string("\x1b[1m"),
        std::string(1 << 21, 'a'), "a[" + std::string(300, '1') + "]"}) {
    const auto first = first_of_node_list(list);
    ASSERT_TRUE(first.has_error()) << list.substr(0, 20);
    EXPECT_THAT(first.error().message(), HasSubstr("SLURM_STEP_NODELIST"));
    EXPECT_LT(first.error().message().size(), 250u);
  }
}

}  // namespace
}  // namespace plexus
