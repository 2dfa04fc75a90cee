// SPDX-License-Identifier: Apache-2.0
// The collectives with settings of one call (ncclAllReduceConfig and its family): results, what the
// settings choose, and bad ones outside and inside groups.
#include <array>
#include <functional>
#include <numeric>
#include <plexus.h>
#include <string>
#include <utility>
#include <vector>

#include "tests/ranks/job.hpp"

namespace plexus::testing_job {
namespace {

using testing::HasSubstr;

std::string last_choice(ncclComm_t comm) {
  const char* algorithm = "";
  const char* protocol = "";
  int channels = 0;
  EXPECT_EQ(plexusGetLastChoice(comm, &algorithm, &protocol, &channels), ncclSuccess);
  return std::string(algorithm) + " " + protocol + " " + std::to_string(channels);
}

ncclCollConfig_t selecting(const char* selection, int force = 1) {
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.algSelection = selection;
  config.forceAlgSelection = force;
  return config;
}

constexpr int kRanks = 4;
constexpr size_t kCount = 60;

/// All ranks' all-reduce of kCount floats in one group; checks the result.
void all_reduce(Job& job, const ncclCollConfig_t* config) {
  std::vector<std::vector<float>> values(kRanks, std::vector<float>(kCount));
  for (int rank = 0; rank < kRanks; ++rank) {
    for (size_t i = 0; i < kCount; ++i) {
      values[static_cast<size_t>(rank)][i] = static_cast<float>(value_of(rank, i));
    }
  }
  job.run_in_group([&](int rank, ncclComm_t comm) {
    float* const mine = values[static_cast<size_t>(rank)].data();
    return ncclAllReduceConfig(mine, mine, kCount, ncclFloat, ncclSum, comm, nullptr, config);
  });
  for (size_t i = 0; i < kCount; ++i) {
    int64_t sum = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      sum += value_of(rank, i);
    }
    for (const auto& mine : values) {
      ASSERT_EQ(mine[i], static_cast<float>(sum)) << i;
    }
  }
}

using Call = std::function<ncclResult_t(const int* in, int* out, ncclComm_t comm)>;

/// What all ranks get by `call`; rank i gives 10 i, 10 i + 1, ...
std::vector<std::vector<int>> results_of(Job& job, const Call& call) {
  std::vector<std::vector<int>> in(kRanks, std::vector<int>(kRanks));
  for (size_t rank = 0; rank < kRanks; ++rank) {
    std::iota(in[rank].begin(), in[rank].end(), static_cast<int>(10 * rank));
  }
  std::vector<std::vector<int>> out(kRanks, std::vector<int>(kRanks, -1));
  job.run_in_group([&](int rank, ncclComm_t comm) {
    return call(in[static_cast<size_t>(rank)].data(), out[static_cast<size_t>(rank)].data(), comm);
  });
  return out;
}

TEST(CollConfig, EveryCollectiveGivesTheSameAsWithoutOne) {
  Job job(kRanks);
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.maxCTAs = 1;
  config.userProfilerTag = 12;
  const ncclCollConfig_t* settings = &config;
  constexpr int kRoot = 2;
  const std::pair<Call, Call> both[] = {
      {[&](const int* send, int* recv, ncclComm_t comm) {
         return ncclReduce(send, recv, 4, ncclInt, ncclSum, kRoot, comm, nullptr);
       },
       [&](const int* send, int* recv, ncclComm_t comm) {
         return ncclReduceConfig(send, recv, 4, ncclInt, ncclSum, kRoot, comm, nullptr, settings);
       }},
      {[&](const int* send, int* recv, ncclComm_t comm) {
         return ncclBroadcast(send, recv, 4, ncclInt, kRoot, comm, nullptr);
       },
       [&](const int* send, int* recv, ncclComm_t comm) {
         return ncclBroadcastConfig(send, recv, 4, ncclInt, kRoot, comm, nullptr, settings);
       }},
      {[&](const int* send, int* recv, ncclComm_t comm) {
         return ncclAllReduce(send, recv, 4, ncclInt, ncclMax, comm, nullptr);
       },
       [&](const int* send, int* recv, ncclComm_t comm) {
         return ncclAllReduceConfig(send, recv, 4, ncclInt, ncclMax, comm, nullptr, settings);
       }},
      {[&](const int* send, int* recv, ncclComm_t comm) {
         return ncclReduceScatter(send, recv, 1, ncclInt, ncclSum, comm, nullptr);
       },
       [&](const int* send, int* recv, ncclComm_t comm) {
         return ncclReduceScatterConfig(send, recv, 1, ncclInt, ncclSum, comm, nullptr, settings);
       }},
      {[&](const int* send, int* recv, ncclComm_t comm) {
         return ncclAllGather(send, recv, 1, ncclInt, comm, nullptr);
       },
       [&](const int* send, int* recv, ncclComm_t comm) {
         return ncclAllGatherConfig(send, recv, 1, ncclInt, comm, nullptr, settings);
       }},
      {[&](const int* send, int* recv, ncclComm_t comm) {
         return ncclAlltoAll(send, recv, 1, ncclInt, comm, nullptr);
       },
       [&](const int* send, int* recv, ncclComm_t comm) {
         return ncclAlltoAllConfig(send, recv, 1, ncclInt, comm, nullptr, settings);
       }},
      {[&](const int* send, int* recv, ncclComm_t comm) {
         return ncclGather(send, recv, 1, ncclInt, kRoot, comm, nullptr);
       },
       [&](const int* send, int* recv, ncclComm_t comm) {
         return ncclGatherConfig(send, recv, 1, ncclInt, kRoot, comm, nullptr, settings);
       }},
      {[&](const int* send, int* recv, ncclComm_t comm) {
         return ncclScatter(send, recv, 1, ncclInt, kRoot, comm, nullptr);
       },
       [&](const int* send, int* recv, ncclComm_t comm) {
         return ncclScatterConfig(send, recv, 1, ncclInt, kRoot, comm, nullptr, settings);
       }},
  };
  for (const auto& [without, with] : both) {
    const auto expected = results_of(job, without);
    EXPECT_EQ(results_of(job, with), expected);
    settings = nullptr;
    EXPECT_EQ(results_of(job, with), expected);
    settings = &config;
  }
}

TEST(CollConfig, ASelectionChoosesAlgorithmAndProtocolForThisCallOnly) {
  Job job(kRanks);
  all_reduce(job, nullptr);
  const std::string before = last_choice(job.comm(0));
  for (const auto& [selection, choice] :
       {std::pair{"ring_simple", "ring Simple"}, std::pair{"Tree_LL+^tree_ll128", "tree LL "},
        std::pair{"nvls,swing_ll128", "swing LL128"}, std::pair{"ring+^ring_ll", "ring Simple"}}) {
    const ncclCollConfig_t config = selecting(selection);
    all_reduce(job, &config);
    EXPECT_THAT(last_choice(job.comm(0)), testing::StartsWith(choice)) << selection;
  }
  all_reduce(job, nullptr);
  EXPECT_EQ(last_choice(job.comm(0)), before);
}

TEST(CollConfig, ChannelsAreWithinTheCallsBounds) {
  Job job(kRanks);
  ncclCollConfig_t config = selecting("ring_simple");
  config.minCTAs = 3;
  all_reduce(job, &config);
  EXPECT_EQ(last_choice(job.comm(0)), "ring Simple 3");
  config.minCTAs = 1;
  config.maxCTAs = 1;
  all_reduce(job, &config);
  EXPECT_EQ(last_choice(job.comm(0)), "ring Simple 1");
}

TEST(CollConfig, WhatIsSelectedAndCannotBeFailsTheGroupUnlessItNeedNotBe) {
  Job job(2);
  std::array<float, 2> values{1, 2};
  const auto run = [&](const ncclCollConfig_t& config) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    std::array<ncclResult_t, 2> results{};
    for (size_t rank = 0; rank < 2; ++rank) {
      results[rank] = ncclAllReduceConfig(&values[rank], &values[rank], 1, ncclFloat, ncclSum,
                                          job.comm(static_cast<int>(rank)), nullptr, &config);
    }
    return std::pair{results[0], ncclGroupEnd()};
  };
  using Results = std::pair<ncclResult_t, ncclResult_t>;
  EXPECT_EQ(run(selecting("rung")), (Results{ncclInvalidArgument, ncclInvalidArgument}));
  EXPECT_EQ(run(selecting("nvls")), (Results{ncclInvalidArgument, ncclInvalidArgument}));
  EXPECT_EQ(run(selecting("collnet")), (Results{ncclSuccess, ncclInvalidArgument}))
      << "known, and there is no collnet plugin";
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("nothing that algSelection names is possible"));
  EXPECT_EQ(values, (std::array<float, 2>{1, 2})) << "nothing has run";
  for (const char* const selection : {"rung", "nvls", "collnet", " ,"}) {
    values = {1, 2};
    EXPECT_EQ(run(selecting(selection, 0)), (Results{ncclSuccess, ncclSuccess})) << selection;
    EXPECT_EQ(values, (std::array<float, 2>{3, 3})) << selection;
  }
}

TEST(CollConfig, ABadHeaderDoesNotFailTheGroup) {
  Job job(1);
  float value = 5;
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.magic = 0;
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(
      ncclAllReduceConfig(&value, &value, 1, ncclFloat, ncclSum, job.comm(0), nullptr, &config),
      ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, job.comm(0), nullptr),
            ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
}

TEST(CollConfig, ASelectionIsLookedAtOnOneRankAndNotForCountZero) {
  Job job(1);
  float value = 5;
  const ncclCollConfig_t config = selecting("rung");
  const auto call = [&](size_t count) {
    return ncclAllReduceConfig(&value, &value, count, ncclFloat, ncclSum, job.comm(0), nullptr,
                               &config);
  };
  EXPECT_EQ(call(1), ncclInvalidArgument);
  EXPECT_EQ(call(0), ncclSuccess);
}

TEST(CollConfig, AnEventForRanksOnTheHostIsRefused) {
  Job job(1);
  float value = 5;
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.launchCompletionEvent = reinterpret_cast<cudaEvent_t>(&value);
  EXPECT_EQ(
      ncclAllReduceConfig(&value, &value, 1, ncclFloat, ncclSum, job.comm(0), nullptr, &config),
      ncclInvalidUsage);
}

TEST(CollConfig, AnExplanationNamesTheChoiceAndWhatWasNotPossible) {
  Job job(kRanks);
  std::vector<std::string> reported;
  plexusExplain_t explain{[](void* user, const char* text) {
                            static_cast<std::vector<std::string>*>(user)->emplace_back(text);
                          },
                          &reported};
  ncclConfigExt_t option{};
  option.key.vendorId = PLEXUS_VENDOR_ID;
  option.key.optionId = PLEXUS_OPTION_EXPLAIN;
  option.val.raw = &explain;
  ncclCollConfig_t config = selecting("^tree");
  config.ext = &option;
  all_reduce(job, &config);
  all_reduce(job, &config);
  ASSERT_EQ(reported.size(), 2U * kRanks) << "each call of each rank, from a plan at hand too";
  EXPECT_THAT(reported.front(), testing::StartsWith("all_reduce of 240 bytes on 4 ranks: "));
  EXPECT_THAT(reported.front(), HasSubstr("not possible: "));
  EXPECT_THAT(reported.front(), HasSubstr("tree LL (excluded by algSelection)"));
  EXPECT_EQ(reported.front(), reported.back());
}

TEST(CollConfig, ADeterministicCallCombinesInRankOrder) {
  Job job(3);
  ncclConfigExt_t option{};
  option.key.vendorId = PLEXUS_VENDOR_ID;
  option.key.optionId = PLEXUS_OPTION_DETERMINISTIC;
  option.val.i = 1;
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.ext = &option;
  const std::array<float, 3> values{1e8F, 1.25F, -1e8F};
  std::array<float, 3> sums{};
  job.run_in_group([&](int rank, ncclComm_t comm) {
    const auto place = static_cast<size_t>(rank);
    return ncclAllReduceConfig(&values[place], &sums[place], 1, ncclFloat, ncclSum, comm, nullptr,
                               &config);
  });
  const float in_order = values[0] + values[1] + values[2];
  EXPECT_EQ(sums, (std::array<float, 3>{in_order, in_order, in_order}));
  config.algSelection = "ring";
  float value = 1;
  EXPECT_EQ(
      ncclAllReduceConfig(&value, &value, 1, ncclFloat, ncclSum, job.comm(0), nullptr, &config),
      ncclInvalidUsage)
      << "a ring does not combine in rank order";
}

}  // namespace
}  // namespace plexus::testing_job
