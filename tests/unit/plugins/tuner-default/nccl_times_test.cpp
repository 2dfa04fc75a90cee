// SPDX-License-Identifier: Apache-2.0
#include "plugins/tuner-default/nccl_times.hpp"

#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugins/tuner-default/calibration.hpp"

namespace plexus::tuner_default {
namespace {

using ::testing::HasSubstr;

constexpr float kNot = NCCL_TUNER_NOT_POSSIBLE;

/// [algorithms][protocols], as NCCL gives it.
struct Costs {
  std::array<float, size_t{NCCL_TUNER_ALGORITHMS} * NCCL_TUNER_PROTOCOLS> values;
  Costs() { values.fill(kNot); }
  float& at(int algorithm, int protocol) {
    return values[static_cast<size_t>(algorithm) * NCCL_TUNER_PROTOCOLS +
                  static_cast<size_t>(protocol)];
  }
  [[nodiscard]] plugin::NcclCosts table() {
    return {values.data(), NCCL_TUNER_ALGORITHMS, NCCL_TUNER_PROTOCOLS};
  }
};

NcclTuner tuner_of(const std::string& json, size_t nranks = 16, size_t nnodes = 2) {
  const auto read = parse_calibration(json);
  EXPECT_TRUE(read.has_value()) << read.error().text;
  return {nranks, nnodes, read.value().nccl};
}

constexpr const char* kTwoPairs = R"({"nccl": [{"ranks": 16, "nodes": 2, "collective": "all_reduce",
    "bytes": [1024, 4096], "time_us": {"ring/LL": [40, 80], "tree/Simple": [20, 10]}}]})";

TEST(NcclTimes, AreNamedAsNccl) {
  EXPECT_EQ(name_of_pair(NCCL_TUNER_RING, NCCL_TUNER_LL128), "ring/LL128");
  EXPECT_EQ(name_of_pair(NCCL_TUNER_PAT, NCCL_TUNER_SIMPLE), "pat/Simple");
  EXPECT_EQ(name_of_pair(NCCL_TUNER_ALGORITHMS, 0), "");
  EXPECT_TRUE(is_pair("nvlstree/Simple"));
  EXPECT_FALSE(is_pair("ring"));
}

TEST(NcclTimes, ReplacePredictionsAndScaleTheRest) {
  const NcclTuner tuner = tuner_of(kTwoPairs);
  Costs costs;
  costs.at(NCCL_TUNER_RING, NCCL_TUNER_LL) = 10;
  costs.at(NCCL_TUNER_TREE, NCCL_TUNER_SIMPLE) = 20;
  costs.at(NCCL_TUNER_RING, NCCL_TUNER_SIMPLE) = 30;
  tuner.adjust({NCCL_TUNER_ALL_REDUCE, 1024}, costs.table());
  EXPECT_FLOAT_EQ(costs.at(NCCL_TUNER_RING, NCCL_TUNER_LL), 40);
  EXPECT_FLOAT_EQ(costs.at(NCCL_TUNER_TREE, NCCL_TUNER_SIMPLE), 20);
  EXPECT_FLOAT_EQ(costs.at(NCCL_TUNER_RING, NCCL_TUNER_SIMPLE), 60) << "4 and 1 times: 2";
  EXPECT_EQ(costs.at(NCCL_TUNER_TREE, NCCL_TUNER_LL), kNot) << "it stays excluded";
}

TEST(NcclTimes, AreInterpolatedBetweenSizesAndEndWithThem) {
  const NcclTuner tuner = tuner_of(kTwoPairs);
  Costs costs;
  costs.at(NCCL_TUNER_RING, NCCL_TUNER_LL) = 10;
  tuner.adjust({NCCL_TUNER_ALL_REDUCE, 2048}, costs.table());
  EXPECT_NEAR(costs.at(NCCL_TUNER_RING, NCCL_TUNER_LL), 56.57, 0.01);
  for (const uint64_t beyond : {uint64_t{1023}, uint64_t{4097}}) {
    costs.at(NCCL_TUNER_RING, NCCL_TUNER_LL) = 10;
    tuner.adjust({NCCL_TUNER_ALL_REDUCE, beyond}, costs.table());
    EXPECT_FLOAT_EQ(costs.at(NCCL_TUNER_RING, NCCL_TUNER_LL), 10) << beyond;
  }
}

TEST(NcclTimes, HoldForTheirRanksNodesAndCollectiveOnly) {
  for (const NcclTuner& tuner : {tuner_of(kTwoPairs, 8), tuner_of(kTwoPairs, 16, 1)}) {
    EXPECT_FALSE(tuner.choose({NCCL_TUNER_ALL_REDUCE, 1024}).has_value());
  }
  const NcclTuner tuner = tuner_of(kTwoPairs);
  for (const int other : {NCCL_TUNER_BROADCAST, -1, 5}) {
    EXPECT_FALSE(tuner.choose({other, 1024}).has_value()) << other;
  }
  const auto best = tuner.choose({NCCL_TUNER_ALL_REDUCE, 1024});
  ASSERT_TRUE(best.has_value());
  EXPECT_EQ(best->algorithm, NCCL_TUNER_TREE);
  EXPECT_EQ(best->protocol, NCCL_TUNER_SIMPLE);
}

TEST(NcclTimes, OfFilesThatCannotBeMeantAreRefused) {
  const struct {
    const char* row;
    const char* why;
  } kCases[] = {
      {R"({"ranks": 4, "collective": "all_reduce", "bytes": [1], "time_us": {"ring/LL": [1]}})",
       "nccl[0] has no nodes from 1 to its ranks"},
      {R"({"ranks": 4, "nodes": 5, "collective": "all_reduce", "bytes": [1], "time_us": {}})",
       "has no nodes"},
      {R"({"ranks": 4, "nodes": 1, "collective": "all_reduce", "bytes": [1], "time_us": {"ring": [1]}})",
       "has times of ring, which is no algorithm"},
      {R"({"ranks": 4, "nodes": 1, "collective": "all_reduce", "bytes": [2, 1], "time_us": {}})",
       "do not ascend"},
      {R"({"nodes": 1})", "lacks one of nodes, ranks"},
      {R"(7)", "lacks one of"},
  };
  for (const auto& one : kCases) {
    const auto read = parse_calibration(std::string(R"({"nccl": [)") + one.row + "]}");
    ASSERT_TRUE(read.has_error()) << one.row;
    EXPECT_THAT(read.error().text, HasSubstr(one.why));
  }
}

}  // namespace
}  // namespace plexus::tuner_default
