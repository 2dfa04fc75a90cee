// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/traffic.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::perf {
namespace {

using ::testing::HasSubstr;

TEST(Traffic, IsSplitEvenlyOrByDistance) {
  const Traffic even(0);
  const Traffic by_distance(1);
  const Traffic half(0.5);
  for (int source = 0; source < 4; ++source) {
    for (int target = 0; target < 4; ++target) {
      const auto distance = static_cast<size_t>((target - source + 4) % 4);
      EXPECT_EQ(even.bytes(source, target, 4, 960), 240U);
      EXPECT_EQ(by_distance.bytes(source, target, 4, 960), 160 * distance);
      EXPECT_EQ(half.bytes(source, target, 4, 960), (120 + 80 * distance) / 16 * 16);
    }
  }
  EXPECT_EQ(by_distance.largest_bytes(4, 960), 960U);
  EXPECT_EQ(by_distance.bytes(0, 0, 1, 100), 96U);  // a rank alone sends to itself
}

TEST(Traffic, IsThatOfAMatrix) {
  const Traffic traffic = Traffic::parse("100 200\t150\n\n 50 100 75 \r\n300 1.5e2 200", 1).value();
  EXPECT_EQ(traffic.matrix_ranks(), 3);
  EXPECT_EQ(traffic.bytes(0, 1, 3, 0), 192U);
  EXPECT_EQ(traffic.bytes(2, 1, 3, 0), 144U);
  EXPECT_EQ(traffic.bytes(2, 1, 2, 12345), 144U);  // the matrix may be larger than the job
  EXPECT_EQ(traffic.largest_bytes(3, 0), 288U + 144U + 192U);
  EXPECT_EQ(Traffic::parse("100", 2).value().bytes(0, 0, 1, 0), 192U);
}

TEST(Traffic, RefusesWhatIsNoSquareOfNumbers) {
  const auto refusal = [](const std::string& text, double scale = 1) {
    const Result<Traffic> traffic = Traffic::parse(text, scale);
    return traffic ? "taken" : traffic.error().message();
  };
  EXPECT_THAT(refusal(""), HasSubstr("square matrix, found 0 rows"));
  EXPECT_THAT(refusal("1 2\n"), HasSubstr("found 1 rows of 2 numbers"));
  EXPECT_THAT(refusal("1\n2\n3\n"), HasSubstr("found 2 or more rows of 1 numbers"));
  EXPECT_THAT(refusal("1 2\n3"), HasSubstr("row 1 has 1 numbers, expected 2"));
  EXPECT_THAT(refusal("1 2\n3 x"), HasSubstr("row 1, column 1: expects a number of bytes"));
  EXPECT_THAT(refusal("-1"), HasSubstr("row 0, column 0"));
  EXPECT_THAT(refusal("nan"), HasSubstr("row 0, column 0"));
  EXPECT_THAT(refusal("1e15", 1e9), HasSubstr("row 0, column 0"));
  std::string wide;
  for (int i = 0; i < 5000; ++i) {
    wide += "1 ";
  }
  EXPECT_THAT(refusal(wide), HasSubstr("row 0 has 5000 numbers, expected 4096"));
}

}  // namespace
}  // namespace plexus::perf
