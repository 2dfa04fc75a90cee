// SPDX-License-Identifier: Apache-2.0
#include "plugins/tuner-default/calibration.hpp"

#include <fstream>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::tuner_default {
namespace {

using ::testing::HasSubstr;

class CalibrationTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  plugin::Result<CalibrationFile> read(const std::string& text) const {
    std::ofstream(path_) << text;
    return read_calibration(path_);
  }
  [[nodiscard]] std::string refusal(const std::string& text) const {
    const auto result = read(text);
    EXPECT_TRUE(result.has_error()) << text;
    return result.has_error() ? result.error().text : "";
  }
  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("plexus_calibration_" + std::to_string(getpid()));
};

TEST_F(CalibrationTest, TakesWhatIsThereAndKeepsTheRest) {
  const auto read_back = read(R"({"links": {"host": {"latency_us": 0.5, "us_per_byte": 1e-4}}})");
  ASSERT_TRUE(read_back.has_value()) << read_back.error().text;
  EXPECT_DOUBLE_EQ(read_back.value().model.links[PLEXUS_LINK_HOST].latency_us, 0.5);
  EXPECT_DOUBLE_EQ(read_back.value().model.links[PLEXUS_LINK_HOST].us_per_byte, 1e-4);
  EXPECT_DOUBLE_EQ(read_back.value().model.links[PLEXUS_LINK_HOST].message_us,
                   kDefaultCalibration.links[PLEXUS_LINK_HOST].message_us);
  EXPECT_DOUBLE_EQ(read_back.value().model.links[PLEXUS_LINK_NET].latency_us,
                   kDefaultCalibration.links[PLEXUS_LINK_NET].latency_us);
}

TEST_F(CalibrationTest, TakesWhatAHostCosts) {
  const auto read_back = read(R"({"about": {"cores": 2}, "host": {"turn_us": 2, "spread": 0}})");
  ASSERT_TRUE(read_back.has_value()) << read_back.error().text;
  EXPECT_DOUBLE_EQ(read_back.value().model.host.turn_us, 2);
  EXPECT_DOUBLE_EQ(read_back.value().model.host.spread, 0);
  EXPECT_DOUBLE_EQ(read_back.value().model.host.reduce_us_per_byte,
                   kDefaultCalibration.host.reduce_us_per_byte);
}

TEST_F(CalibrationTest, TakesMeasuredTimes) {
  const auto read_back = read(R"({"measured": [{"link": "host", "ranks": 4, "collective": "reduce",
      "bytes": [64, 256], "time_us": {"ring": [0.5, 1], "tree": [1, 2]}}]})");
  ASSERT_TRUE(read_back.has_value()) << read_back.error().text;
  ASSERT_EQ(read_back.value().measured.size(), 1U);
  const MeasuredCall& call = read_back.value().measured[0];
  EXPECT_EQ(call.link, PLEXUS_LINK_HOST);
  EXPECT_EQ(call.nranks, 4U);
  EXPECT_EQ(call.collective, "reduce");
  EXPECT_THAT(call.bytes, ::testing::ElementsAre(64, 256));
  EXPECT_THAT(call.time_us.at("tree"), ::testing::ElementsAre(1, 2));
}

TEST_F(CalibrationTest, SaysWhatIsWrongWithMeasuredTimes) {
  const auto with = [&](const std::string& bytes, const std::string& times) {
    return refusal(
        R"({"measured": [{"link": "host", "ranks": 4, "collective": "reduce", "bytes": )" + bytes +
        R"(, "time_us": )" + times + "}]}");
  };
  EXPECT_THAT(with("[64]", "{\"ring\": [1, 2]}"),
              HasSubstr("measured[0] has 2 times of ring for 1 sizes"));
  EXPECT_THAT(with("[64, 64]", "{}"), HasSubstr("bytes that do not ascend"));
  EXPECT_THAT(with("[0.5]", "{}"), HasSubstr("bytes that do not ascend from 1"));
  EXPECT_THAT(with("[]", "{}"), HasSubstr("bytes is not a list of numbers"));
  EXPECT_THAT(with("[64]", "{\"ring\": [0]}"), HasSubstr("time_us of ring has 0"));
  EXPECT_THAT(with("[64]", "[1]"), HasSubstr("lacks one of"));
  EXPECT_THAT(refusal(R"({"measured": {}})"), HasSubstr("measured that is not a list"));
  EXPECT_THAT(refusal(R"({"measured": [3]})"), HasSubstr("measured[0] has the unknown link "));
  EXPECT_THAT(refusal(R"({"measured": [{"link": "host", "ranks": 1, "collective": "reduce",
      "bytes": [1], "time_us": {}}]})"),
              HasSubstr("ranks (2 or more)"));
}

TEST_F(CalibrationTest, SaysWhatIsWrong) {
  EXPECT_THAT(refusal(""), HasSubstr("cannot be read as JSON with"));
  EXPECT_THAT(refusal("[1, 2]"), HasSubstr("links"));
  EXPECT_THAT(refusal(R"({"links": {"moon": {}}})"), HasSubstr("link moon"));
  EXPECT_THAT(refusal(R"({"links": {"host": 3}})"), HasSubstr("not an object"));
  EXPECT_THAT(refusal(R"({"links": {"host": {"speed": 3}}})"), HasSubstr("unknown key speed"));
  EXPECT_THAT(refusal(R"({"links": {"host": {"latency_us": -1}}})"), HasSubstr("latency_us = -1"));
  EXPECT_THAT(refusal(R"({"links": {"host": {"latency_us": "fast"}}})"), HasSubstr("fast"));
  EXPECT_THAT(refusal(R"({"links": {"host": {"latency_us": 1e300}}})"), HasSubstr("1e+300"));
  EXPECT_THAT(
      refusal(R"({"host": {"spin": 1}})"),
      HasSubstr(
          "host has the unknown key spin, expected one of reduce_us_per_byte, turn_us, spread"));
  EXPECT_THAT(refusal(R"({"host": {"turn_us": -1}})"), HasSubstr("turn_us = -1"));
  EXPECT_THAT(refusal(R"({"host": {}, "moon": {}})"),
              HasSubstr("unknown key moon, expected one of"));
  EXPECT_TRUE(read_calibration("/nonexistent/file").has_error());
}

}  // namespace
}  // namespace plexus::tuner_default
