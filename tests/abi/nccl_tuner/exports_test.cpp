// SPDX-License-Identifier: Apache-2.0
// Plexus's own tuners as stock NCCL loads them: tables v2 to v6, in the order of NCCL's calls.
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugin-api/nccl/tuner.h"
#include "plugin-api/plexus_plugin.h"

namespace {

using testing::HasSubstr;

/// What the tuner logged last, at which of NCCL's levels.
struct Line {
  int level = 0;
  std::string text;
};
Line& last_line() {
  static Line line;
  return line;
}
void take_line(int level,
               unsigned long /*subsystem*/,
               const char* /*file*/,
               int /*line*/,
               const char* format,
               ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  last_line() = {level, text};
}

constexpr int kRingLL = NCCL_TUNER_RING * NCCL_TUNER_PROTOCOLS + NCCL_TUNER_LL;
constexpr int kTreeSimple = NCCL_TUNER_TREE * NCCL_TUNER_PROTOCOLS + NCCL_TUNER_SIMPLE;
using CostTable = std::array<float, size_t{NCCL_TUNER_ALGORITHMS} * NCCL_TUNER_PROTOCOLS>;

class ExportedTuner : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string file =
        std::string(std::getenv("PLEXUS_TEST_LIB_DIR")) + "/lib" + GetParam() + ".so";
    library_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    path_ = testing::TempDir() + "plexus_tuner_exports." + std::to_string(getpid()) + ".json";
    std::ofstream(path_) << R"({"nccl": [{"ranks": 16, "nodes": 2, "collective": "all_reduce",
      "bytes": [1024, 4096], "time_us": {"ring/LL": [40, 40], "tree/Simple": [20, 20]}}]})";
    setenv("PLEXUS_TUNE_FILE", path_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("PLEXUS_TUNE_FILE");
    unlink(path_.c_str());
  }
  template <class Table>
  const Table& table(const char* symbol) {
    const void* const found = dlsym(library_, symbol);
    EXPECT_NE(found, nullptr) << symbol;
    return *static_cast<const Table*>(found);
  }
  static CostTable predictions() {
    CostTable costs;
    costs.fill(NCCL_TUNER_NOT_POSSIBLE);
    costs[kRingLL] = 10;
    costs[kTreeSimple] = 30;
    return costs;
  }
  static void expect_measured(const CostTable& costs, int channels) {
    CostTable wanted = predictions();
    wanted[kRingLL] = 40;
    wanted[kTreeSimple] = 20;
    EXPECT_EQ(costs, wanted);
    EXPECT_EQ(channels, 0) << "no opinion";
  }
  template <class Table>
  void start_v2(const Table& tuner, void** context, size_t nranks = 16) {
    ASSERT_EQ(tuner.init(nranks, 2, take_line, context), PLEXUS_OK) << last_line().text;
  }
  template <class Table>
  void start_v5(const Table& tuner, void** context) {
    nccl_tuner_domains_v5_t domains = {2, 8, 8};
    nccl_tuner_constants_v5_t constants{};
    ASSERT_EQ(tuner.init(context, 7, 16, 2, take_line, &domains, &constants), PLEXUS_OK);
  }
  template <class Table>
  void expect_measured_v4(const Table& tuner, void* context) {
    CostTable costs = predictions();
    int channels = 0;
    ASSERT_EQ(
        tuner.info(context, NCCL_TUNER_ALL_REDUCE, 2048, 1, reinterpret_cast<float**>(costs.data()),
                   NCCL_TUNER_ALGORITHMS, NCCL_TUNER_PROTOCOLS, 0, &channels),
        PLEXUS_OK);
    expect_measured(costs, channels);
    EXPECT_EQ(tuner.finalize(context), PLEXUS_OK);
  }

  void* library_ = nullptr;
  std::string path_;
};

TEST_P(ExportedTuner, HasEveryVersionUnderItsName) {
  EXPECT_STREQ(table<nccl_tuner_v2_t>("ncclTunerPlugin_v2").name,
               GetParam() + sizeof("plexus-") - 1);
  EXPECT_STREQ(table<nccl_tuner_v6_t>("ncclTunerPlugin_v6").name,
               GetParam() + sizeof("plexus-") - 1);
  EXPECT_EQ(table<nccl_tuner_v6_t>("ncclTunerPlugin_v6").chunk, nullptr) << "NCCL's chunks stay";
}

TEST_P(ExportedTuner, V2NamesTheFastestPairOrNone) {
  const auto& tuner = table<nccl_tuner_v2_t>("ncclTunerPlugin_v2");
  void* context = nullptr;
  start_v2(tuner, &context);
  int algorithm = 0;
  int protocol = 0;
  int channels = 0;
  ASSERT_EQ(
      tuner.info(context, NCCL_TUNER_ALL_REDUCE, 2048, 0, 0, 1, &algorithm, &protocol, &channels),
      PLEXUS_OK);
  EXPECT_EQ(algorithm, NCCL_TUNER_TREE);
  EXPECT_EQ(protocol, NCCL_TUNER_SIMPLE);
  ASSERT_EQ(
      tuner.info(context, NCCL_TUNER_BROADCAST, 2048, 0, 0, 1, &algorithm, &protocol, &channels),
      PLEXUS_OK);
  EXPECT_EQ(algorithm, NCCL_TUNER_UNDEFINED);
  EXPECT_EQ(protocol, NCCL_TUNER_UNDEFINED);
  EXPECT_EQ(tuner.finalize(context), PLEXUS_OK);
}

TEST_P(ExportedTuner, V3ToV6PutMeasuredTimesIntoTheTable) {
  void* context = nullptr;
  const auto& v3 = table<nccl_tuner_v3_t>("ncclTunerPlugin_v3");
  start_v2(v3, &context);
  CostTable costs = predictions();
  int channels = 0;
  ASSERT_EQ(
      v3.info(context, NCCL_TUNER_ALL_REDUCE, 2048, 1, reinterpret_cast<float**>(costs.data()),
              NCCL_TUNER_ALGORITHMS, NCCL_TUNER_PROTOCOLS, &channels),
      PLEXUS_OK);
  expect_measured(costs, channels);
  EXPECT_EQ(v3.finalize(context), PLEXUS_OK);
  const auto& v4 = table<nccl_tuner_v4_t>("ncclTunerPlugin_v4");
  start_v2(v4, &context);
  expect_measured_v4(v4, context);
  const auto& v5 = table<nccl_tuner_v5_t>("ncclTunerPlugin_v5");
  start_v5(v5, &context);
  expect_measured_v4(v5, context);
  const auto& v6 = table<nccl_tuner_v6_t>("ncclTunerPlugin_v6");
  start_v5(v6, &context);
  expect_measured_v4(v6, context);
}

TEST_P(ExportedTuner, CommunicatorsHaveTimesOfTheirOwn) {
  const auto& tuner = table<nccl_tuner_v4_t>("ncclTunerPlugin_v4");
  void* measured = nullptr;
  void* other = nullptr;
  start_v2(tuner, &measured);
  start_v2(tuner, &other, 8);
  EXPECT_THAT(last_line().text, HasSubstr("no times of 8 ranks on 2 nodes"));
  EXPECT_EQ(last_line().level, NCCL_LOG_WARN);
  CostTable costs = predictions();
  int channels = 0;
  ASSERT_EQ(
      tuner.info(other, NCCL_TUNER_ALL_REDUCE, 2048, 1, reinterpret_cast<float**>(costs.data()),
                 NCCL_TUNER_ALGORITHMS, NCCL_TUNER_PROTOCOLS, 0, &channels),
      PLEXUS_OK);
  EXPECT_EQ(costs, predictions());
  EXPECT_EQ(tuner.finalize(other), PLEXUS_OK);
  expect_measured_v4(tuner, measured);
}

TEST_P(ExportedTuner, RefusesAFileThatItCannotUseWithItsName) {
  std::ofstream(path_) << R"({"nccl": 3})";
  void* context = nullptr;
  EXPECT_EQ(table<nccl_tuner_v4_t>("ncclTunerPlugin_v4").init(16, 2, take_line, &context),
            PLEXUS_INVALID_USAGE);
  EXPECT_THAT(last_line().text, HasSubstr("PLEXUS_TUNE_FILE=" + path_));
  EXPECT_EQ(last_line().level, NCCL_LOG_WARN);
  EXPECT_EQ(context, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Own,
                         ExportedTuner,
                         testing::Values("plexus-tuner-default", "plexus-tuner-online"));

}  // namespace
