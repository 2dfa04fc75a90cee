// SPDX-License-Identifier: Apache-2.0
// Tuner plugins as a user sees them: a named tuner decides; a misbehaving one only causes a WARN;
// results are always right.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

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

/// Ranks whose buffers are parts of a block each, which can be made a window.
class Windows {
 public:
  static constexpr size_t kBlockBytes = size_t{4} * NCCL_WIN_REQUIRED_ALIGNMENT;
  static constexpr size_t kCount = 1000;

  Windows() {
    for (void*& block : blocks_) {
      EXPECT_EQ(ncclMemAlloc(&block, kBlockBytes), ncclSuccess);
    }
  }
  ~Windows() {
    for (void* const block : blocks_) {
      EXPECT_EQ(ncclMemFree(block), ncclSuccess);
    }
  }
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  void open(int rank, int flags) {
    EXPECT_EQ(
        ncclCommWindowRegister(job.comm(rank), block(rank), kBlockBytes, &window(rank), flags),
        ncclSuccess);
  }
  void close(int rank) {
    EXPECT_EQ(ncclCommWindowDeregister(job.comm(rank), window(rank)), ncclSuccess);
  }
  [[nodiscard]] float* block(int rank) const {
    return static_cast<float*>(blocks_.at(static_cast<size_t>(rank)));
  }
  /// Sums what is in `sends`, each 1, and returns the algorithm that was used.
  std::string sum(const std::function<float*(int)>& sends,
                  const std::function<float*(int)>& recvs) {
    for (int rank = 0; rank < job.nranks(); ++rank) {
      std::fill_n(sends(rank), kCount, 1.0F);
    }
    for (const ncclResult_t result : job.run_in_threads([&](int rank, ncclComm_t comm) {
           return ncclAllReduce(sends(rank), recvs(rank), kCount, ncclFloat32, ncclSum, comm,
                                nullptr);
         })) {
      EXPECT_EQ(result, ncclSuccess) << ncclGetLastError(nullptr);
    }
    for (int rank = 0; rank < job.nranks(); ++rank) {
      EXPECT_EQ(recvs(rank)[kCount - 1], 4);
    }
    return choice();
  }
  std::string sum_in_place() {
    const auto place = [this](int rank) { return block(rank); };
    return sum(place, place);
  }
  [[nodiscard]] std::string choice() const {
    const char* algorithm = "";
    EXPECT_EQ(plexusGetLastChoice(job.comm(0), &algorithm, nullptr, nullptr), ncclSuccess);
    return algorithm;
  }

  Job job{4};

 private:
  ncclWindow_t& window(int rank) { return windows_.at(static_cast<size_t>(rank)); }

  std::array<void*, 4> blocks_{};
  std::array<ncclWindow_t, 4> windows_{};
};

TEST_F(TunerTest, KnowsOfCallsInSymmetricWindows) {
  use(plugin_file("wild-good"));
  Windows windows;
  EXPECT_EQ(windows.sum_in_place(), "tree");
  const auto all = [](const std::function<void(int)>& each) {
    for (int rank = 0; rank < 4; ++rank) {
      each(rank);
    }
  };
  all([&](int rank) { windows.open(rank, NCCL_WIN_DEFAULT); });
  EXPECT_EQ(windows.sum_in_place(), "tree");
  all([&](int rank) { windows.close(rank); });

  all([&](int rank) { windows.open(rank, NCCL_WIN_COLL_SYMMETRIC); });
  std::vector<float> outside(Windows::kCount);
  for (int again = 0; again < 3; ++again) {  // by plans that there are, too
    EXPECT_EQ(windows.sum_in_place(), "ring");
    EXPECT_EQ(windows.sum([&](int rank) { return windows.block(rank); },
                          [&](int rank) { return windows.block(rank) + 2 * Windows::kCount; }),
              "ring");
    std::vector<std::vector<float>> others(4, outside);
    const auto other = [&](int rank) { return others[static_cast<size_t>(rank)].data(); };
    EXPECT_EQ(windows.sum(other, other), "tree");
    EXPECT_EQ(windows.sum([&](int rank) { return windows.block(rank); }, other), "tree");
    // in groups, which repeat as well
    all([&](int rank) { std::fill_n(windows.block(rank), Windows::kCount, 1.0F); });
    windows.job.run_in_group([&](int rank, ncclComm_t comm) {
      float* const mine = again == 1 ? other(rank) : windows.block(rank);
      return ncclAllReduce(mine, mine, Windows::kCount, ncclFloat32, ncclSum, comm, nullptr);
    });
    EXPECT_EQ(windows.choice(), again == 1 ? "tree" : "ring");
  }
  all([&](int rank) { windows.close(rank); });
  EXPECT_EQ(windows.sum_in_place(), "tree");
}

TEST_F(TunerTest, RanksThatDoNotAllCallInTheirWindowsFail) {
  use(plugin_file("wild-good"));
  Windows windows;
  for (int rank = 0; rank < 4; ++rank) {
    windows.open(rank, NCCL_WIN_COLL_SYMMETRIC);
  }
  std::vector<float> outside(Windows::kCount);
  const auto results = windows.job.run_in_threads([&](int rank, ncclComm_t comm) {
    float* const mine = rank == 2 ? outside.data() : windows.block(rank);
    return ncclAllReduce(mine, mine, Windows::kCount, ncclFloat32, ncclSum, comm, nullptr);
  });
  for (const ncclResult_t result : results) {
    EXPECT_EQ(result, ncclInvalidUsage);
  }
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("by tree"));
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("by ring"));
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

/// Without it other algorithms would be chosen, and nobody would notice.
TEST_F(TunerTest, ACalibrationThatCannotBeUsedIsAnError) {
  const std::string broken = ::testing::TempDir() + "broken_tune.json";
  std::ofstream(broken) << "{\"links\": 1}";
  const std::pair<std::string, const char*> files[] = {
      {"/nonexistent/tune.json", "it cannot be read: "},
      {broken, "has links that are not an object"}};
  for (const auto& [file, cause] : files) {
    setenv("PLEXUS_TUNE_FILE", file.c_str(), 1);
    ncclComm_t comms[2] = {};
    EXPECT_EQ(ncclCommInitAll(comms, 2, nullptr), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(nullptr),
                HasSubstr("PLEXUS_TUNE_FILE=" + file + " (from the environment): " + cause));
  }
  std::filesystem::remove(broken);
}

}  // namespace
}  // namespace plexus
