// SPDX-License-Identifier: Apache-2.0
// Tuner plugins as a user sees them: a named tuner decides; a misbehaving one only causes a WARN;
// results are always right.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <utility>

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

  /// Sums on 4 ranks; returns the algorithm that was used.
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

class CsvTuner : public TunerTest {
 protected:
  void SetUp() override { use(plugin_file("csv")); }
  void TearDown() override {
    unsetenv("CSV_TUNER_FILE");
    std::filesystem::remove(path_);
    TunerTest::TearDown();
  }
  void write(const std::string& text) const {
    std::ofstream(path_) << text;
    setenv("CSV_TUNER_FILE", path_.c_str(), 1);
  }
  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("plexus_csv_tuner_" + std::to_string(getpid()));
};

TEST_F(CsvTuner, TheFirstLineThatFitsDecides) {
  write(
      "# collective,bytes_min,bytes_max,nranks_min,nranks_max,algorithm,channels\n"
      "broadcast,0,1000000,2,8,binomial,0\n"
      "all_reduce,0,1000000,5,64,ring,0\n"
      "\n"
      "all_reduce,0,1000,2,8,doubling,2\n"
      "all_reduce,0,1000,2,8,ring,0\n"
      "all_reduce,1001,1000000,2,8,halving,0\n");
  EXPECT_EQ(sum(100), "doubling");
  EXPECT_EQ(sum(1000), "halving");
  EXPECT_NE(sum(1'000'000), "");
  setenv("NCCL_ALGO", "allreduce:^doubling", 1);
  EXPECT_NE(sum(100), "doubling");
}

TEST_F(CsvTuner, ABadLineIsRefusedWithItsNumberAndReason) {
  const std::pair<const char*, const char*> bad[] = {
      {"all_reduce,0,1\n", "is not collective,bytes_min,bytes_max"},
      {"all_reduce,0,many,2,8,ring,0\n", "is not collective,bytes_min,bytes_max"},
      {"all_reduce,0,-1,2,8,ring,0\n", "is not collective,bytes_min,bytes_max"},
      {"all_reduce,0,99999999999999999999,2,8,ring,0\n", "is not collective,bytes_min"},
      {"sum,0,1,2,8,ring,0\n", "is not collective,bytes_min"},
      {"all_reduce,2,1,2,8,ring,0\n", "has a least value above the most"},
      {"all_reduce,1,2,2,8,,0\n", "is not collective,bytes_min,bytes_max"},
  };
  for (const auto& [line, reason] : bad) {
    write(std::string("all_reduce,0,1000,2,8,ring,0\n") + line);
    EXPECT_NE(sum(), "");
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr(path_.string() + ":2: the line " + reason));
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("the built-in choice is used"));
  }
}

TEST_F(CsvTuner, AMissingFileIsSaid) {
  setenv("CSV_TUNER_FILE", "/nonexistent/file.csv", 1);
  EXPECT_NE(sum(), "");
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("CSV_TUNER_FILE names no file"));
}

TEST_F(TunerTest, TheDefaultOneReadsItsCalibration) {
  setenv("PLEXUS_TUNE_FILE", "/nonexistent/tune.json", 1);
  EXPECT_NE(sum(), "");
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("the built-in choice is used"));
}

}  // namespace
}  // namespace plexus
