// SPDX-License-Identifier: Apache-2.0
// Tuners that learn: each trial lasts for the calls that it was asked for, all ranks agree on its
// time whatever way they make the calls, and what is learned holds.
#include <array>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

using testing_job::Job;

constexpr int kRanks = 3;
constexpr size_t kCount = 1000;
constexpr int kTrials = 4;      // of wild-trials
constexpr int kTrialCalls = 3;  // the shortest that there are

class TrialsTest : public testing::Test {
 protected:
  TrialsTest() {
    const std::string folder = std::getenv("PLEXUS_TEST_EXAMPLE_DIR");
    setenv("NCCL_TUNER_PLUGIN", (folder + "/libplexus-tuner-wild-trials.so").c_str(), 1);
  }
  ~TrialsTest() override { unsetenv("NCCL_TUNER_PLUGIN"); }

  ncclResult_t sum(int rank,
                   ncclComm_t comm,
                   size_t count = kCount,
                   cudaStream_t stream = nullptr) {
    auto& mine = data_[static_cast<size_t>(rank)];
    mine.resize(count);
    const bool in_place = rank == 0 && stream == nullptr;  // on some ranks only
    if (in_place) {
      mine.assign(count, 1);
    }
    const float* const input = in_place ? mine.data() : ones_.data();
    return ncclAllReduce(input, mine.data(), count, ncclFloat32, ncclSum, comm, stream);
  }
  void expect_sums() const {
    for (const auto& mine : data_) {
      EXPECT_EQ(mine.front(), kRanks);
      EXPECT_EQ(mine.back(), kRanks);
    }
  }
  static std::string choice_of(const Job& job, int rank = 0) {
    const char* algorithm = "";
    const char* protocol = "";
    EXPECT_EQ(plexusGetLastChoice(job.comm(rank), &algorithm, &protocol, nullptr), ncclSuccess);
    return std::string(algorithm) + " " + protocol;
  }
  /// The choices of calls that `make` makes, in the order of their first use.
  static std::vector<std::string> learn(const Job& job, const std::function<void()>& make) {
    std::vector<std::string> choices;
    for (int call = 0; call < kTrials * kTrialCalls; ++call) {
      make();
      const std::string choice = choice_of(job);
      EXPECT_EQ(choice_of(job, 1), choice);
      if (call % kTrialCalls == 0) {
        choices.push_back(choice);
      }
      EXPECT_EQ(choices.back(), choice) << "call " << call;
    }
    EXPECT_EQ(std::set(choices.begin(), choices.end()).size(), size_t{kTrials});
    return choices;
  }

  std::vector<float> ones_ = std::vector<float>(4 * kCount, 1);
  std::array<std::vector<float>, kRanks> data_;
};

TEST_F(TrialsTest, TriesInTurnAndThenKeepsOneOfThem) {
  Job job(kRanks);
  const auto make = [&] {
    job.run_in_group([&](int rank, ncclComm_t comm) { return sum(rank, comm); });
    expect_sums();
  };
  const std::vector<std::string> tried = learn(job, make);
  make();
  const std::string kept = choice_of(job);
  EXPECT_THAT(tried, testing::Contains(kept));
  for (int call = 0; call < 2 * kTrialCalls; ++call) {
    make();
    EXPECT_EQ(choice_of(job), kept);
  }
}

TEST_F(TrialsTest, SizesWithTheSameHighestBitAreAlikeAndOthersAreNot) {
  Job job(kRanks);
  const auto make = [&](size_t count) {
    job.run_in_group([&](int rank, ncclComm_t comm) { return sum(rank, comm, count); });
  };
  learn(job, [&] { make(kCount); });
  make(kCount);
  const std::string kept = choice_of(job);
  make(kCount - 100);
  EXPECT_EQ(choice_of(job), kept);
  learn(job, [&] { make(4 * kCount); });
}

/// A rank that calls alone, one with a group of its own around the call and a message, one on a
/// stream: they count alike, and none waits for what comes later.
TEST_F(TrialsTest, RanksMayMakeTheCallsInDifferentWays) {
  Job job(kRanks);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(plexusStreamCreate(&stream), ncclSuccess);
  const auto results = job.run_in_threads([&](int rank, ncclComm_t comm) {
    float sent = 1;
    float received = 0;
    for (int call = 0; call < kTrials * kTrialCalls + 5; ++call) {
      ncclResult_t result = ncclSuccess;
      if (rank == 2) {
        result = sum(rank, comm, kCount, stream);
      } else {
        ncclGroupStart();
        sum(rank, comm);
        ncclSend(&sent, 1, ncclFloat32, 1 - rank, comm, nullptr);
        ncclRecv(&received, 1, ncclFloat32, 1 - rank, comm, nullptr);
        result = ncclGroupEnd();
      }
      if (result != ncclSuccess) {
        return result;
      }
    }
    return plexusStreamSynchronize(stream);
  });
  EXPECT_THAT(results, testing::Each(ncclSuccess)) << ncclGetLastError(nullptr);
  expect_sums();
  EXPECT_EQ(plexusStreamDestroy(stream), ncclSuccess);
}

/// All that is on a stream at once: the next trial begins when the last has ended.
TEST_F(TrialsTest, CallsOnAStreamAreLearnedFrom) {
  Job job(kRanks);
  const auto results = job.run_in_threads([&](int rank, ncclComm_t comm) {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(plexusStreamCreate(&stream), ncclSuccess);
    std::set<std::string> tried;
    for (int call = 0; call < kTrials * kTrialCalls; ++call) {
      if (const ncclResult_t made = sum(rank, comm, kCount, stream); made != ncclSuccess) {
        return made;
      }
      tried.insert(choice_of(job, rank));
    }
    EXPECT_EQ(tried.size(), size_t{kTrials});
    EXPECT_EQ(plexusStreamSynchronize(stream), ncclSuccess);
    return plexusStreamDestroy(stream);
  });
  EXPECT_THAT(results, testing::Each(ncclSuccess)) << ncclGetLastError(nullptr);
  expect_sums();
}

/// A group of several collectives is planned as a whole: its answers hold for good.
TEST_F(TrialsTest, NothingIsTriedInGroupsOfSeveralCollectives) {
  Job job(kRanks);
  std::set<std::string> choices;
  for (int call = 0; call < 2 * kTrialCalls; ++call) {
    job.run_in_group([&](int rank, ncclComm_t comm) {
      const ncclResult_t first = sum(rank, comm);
      return first == ncclSuccess ? sum(rank, comm) : first;
    });
    choices.insert(choice_of(job));
  }
  EXPECT_EQ(choices.size(), 1U);
}

TEST_F(TrialsTest, SettingsThatLeaveOneAlgorithmStand) {
  setenv("NCCL_ALGO", "allreduce:ring", 1);
  setenv("NCCL_PROTO", "Simple", 1);
  Job job(kRanks);
  unsetenv("NCCL_ALGO");
  unsetenv("NCCL_PROTO");
  for (int call = 0; call < kTrials * kTrialCalls + 1; ++call) {
    job.run_in_group([&](int rank, ncclComm_t comm) { return sum(rank, comm); });
    EXPECT_EQ(choice_of(job), "ring Simple");
  }
  expect_sums();
}

}  // namespace
}  // namespace plexus
