// SPDX-License-Identifier: Apache-2.0
// Tuner plugins from the user's side: one that is named decides; one that misbehaves costs nothing
// but a WARN; results are right in every case.
#include <cstdlib>
#include <string>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;
using testing_job::Job;

std::string plugin_file(const std::string& name) {
  return std::string(std::getenv("PLEXUS_TEST_EXAMPLE_DIR")) + "/libplexus-tuner-" + name + ".so";
}

class TunerTest : public testing::Test {
 protected:
  static void use(const std::string& tuner) { setenv("NCCL_TUNER_PLUGIN", tuner.c_str(), 1); }
  void TearDown() override {
    unsetenv("NCCL_TUNER_PLUGIN");
    unsetenv("NCCL_ALGO");
    unsetenv("PLEXUS_TUNE_FILE");
  }

  /// Sums on 4 ranks; the algorithm that did it.
  static std::string sum(size_t count = 100) {
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
    EXPECT_EQ(plexusGetLastChoice(job.comm(0), &algorithm, nullptr, nullptr), ncclSuccess);
    return algorithm;
  }
};

TEST_F(TunerTest, ANamedOneDecides) {
  use(plugin_file("wild-good"));
  EXPECT_EQ(sum(), "tree");
}

TEST_F(TunerTest, TheUsersExclusionsStand) {
  setenv("NCCL_ALGO", "allreduce:^tree", 1);
  use(plugin_file("wild-good"));
  EXPECT_NE(sum(), "tree");
}

TEST_F(TunerTest, OneThatMisbehavesIsPassedOver) {
  use("none");
  const std::string built_in = sum();
  for (const char* const name : {"failing", "throwing", "negative", "refusing"}) {
    use(plugin_file(std::string("wild-") + name));
    EXPECT_EQ(sum(), built_in) << name;
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("the built-in choice is used")) << name;
  }
}

TEST_F(TunerTest, AnswersOutOfRangeAreBroughtIntoIt) {
  use(plugin_file("wild-huge-channels"));
  EXPECT_EQ(sum(), "tree");
  EXPECT_EQ(sum(1 << 20), "tree");
}

TEST_F(TunerTest, AnAbsentOneIsAnErrorThatSaysWhereItWasLookedFor) {
  use("no-such");
  ncclComm_t comms[2];
  EXPECT_EQ(ncclCommInitAll(comms, 2, nullptr), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("libplexus-no-such.so"));
}

TEST_F(TunerTest, ANetPluginIsNoTuner) {
  use(std::string(std::getenv("PLEXUS_TEST_LIB_DIR")) + "/libplexus-net-socket.so");
  ncclComm_t comms[2];
  EXPECT_EQ(ncclCommInitAll(comms, 2, nullptr), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("expected 2 (tuner)"));
}

TEST_F(TunerTest, TheDefaultOneReadsItsCalibration) {
  setenv("PLEXUS_TUNE_FILE", "/nonexistent/tune.json", 1);
  EXPECT_NE(sum(), "");
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("the built-in choice is used"));
}

}  // namespace
}  // namespace plexus
