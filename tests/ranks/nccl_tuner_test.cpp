// SPDX-License-Identifier: Apache-2.0
// Tuners of NCCL's own ABI (tests/abi/nccl_tuner) as a user sees them: they decide, NCCL_ALGO has
// priority, and a misbehaving tuner causes a WARN and never a wrong result.
#include <cstdlib>
#include <string>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;
using testing_job::Job;

std::string library(const std::string& name) {
  return std::string(std::getenv("PLEXUS_TEST_EXAMPLE_DIR")) + "/libnccl-" + name + ".so";
}

class NcclTunerTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    setenv("NCCL_TUNER_PLUGIN", library("tuner-fixture-v" + std::to_string(GetParam())).c_str(), 1);
  }
  void TearDown() override {
    unsetenv("NCCL_TUNER_PLUGIN");
    unsetenv("NCCL_ALGO");
    unsetenv("FIXTURE_TUNER");
  }

  /// Sums on 4 ranks; returns the algorithm that was used.
  static std::string sum(size_t count = 100, int* channels = nullptr) {
    Job job(4);
    std::vector<std::vector<float>> data(4, std::vector<float>(count, 1));
    job.run_in_group([&](int rank, ncclComm_t comm) {
      auto* const mine = data[static_cast<size_t>(rank)].data();
      return ncclAllReduce(mine, mine, count, ncclFloat32, ncclSum, comm, nullptr);
    });
    for (const auto& mine : data) {
      EXPECT_EQ(mine.front(), 4);
      EXPECT_EQ(mine.back(), 4);
    }
    const char* algorithm = "";
    EXPECT_EQ(plexusGetLastChoice(job.comm(0), &algorithm, nullptr, channels), ncclSuccess);
    return algorithm;
  }
  static std::string built_in() {
    const std::string named = std::getenv("NCCL_TUNER_PLUGIN");
    setenv("NCCL_TUNER_PLUGIN", "none", 1);
    const std::string algorithm = sum();
    setenv("NCCL_TUNER_PLUGIN", named.c_str(), 1);
    return algorithm;
  }
};

TEST_P(NcclTunerTest, Decides) {
  setenv("FIXTURE_TUNER", "tree", 1);
  EXPECT_EQ(sum(), "tree");
  EXPECT_EQ(sum(100'000), "tree");
}

TEST_P(NcclTunerTest, WithoutAnOpinionLeavesTheBuiltInChoice) { EXPECT_EQ(sum(), built_in()); }

TEST_P(NcclTunerTest, CannotOverruleTheUser) {
  setenv("FIXTURE_TUNER", "tree", 1);
  setenv("NCCL_ALGO", "allreduce:^tree", 1);
  EXPECT_NE(sum(), "tree");
}

TEST_P(NcclTunerTest, SetsChannels) {
  setenv("FIXTURE_TUNER", "channels", 1);
  int channels = 0;
  (void)sum(100'000, &channels);
  EXPECT_EQ(channels, 3);
}

TEST_P(NcclTunerTest, ThatMisbehavesIsPassedOver) {
  const std::string expected = built_in();
  for (const char* const how : {"fail", "refuse"}) {
    setenv("FIXTURE_TUNER", how, 1);
    EXPECT_EQ(sum(), expected) << how;
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("the built-in choice is used")) << how;
  }
  for (const char* const how : {"nonsense", "elsewhere", "chunk-zero", "chunk-huge"}) {
    setenv("FIXTURE_TUNER", how, 1);
    EXPECT_EQ(sum(), expected) << how;
  }
}

TEST_P(NcclTunerTest, WithOddChunksTheResultIsRight) {
  setenv("FIXTURE_TUNER", "chunk-odd", 1);
  setenv("NCCL_ALGO", "ring", 1);
  EXPECT_EQ(sum(10'007), "ring");
}

INSTANTIATE_TEST_SUITE_P(Versions, NcclTunerTest, testing::Values(2, 3, 4, 5, 6));

}  // namespace
}  // namespace plexus
