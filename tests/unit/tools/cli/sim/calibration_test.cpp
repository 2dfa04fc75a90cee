// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/sim/calibration.hpp"

#include <string>

#include <gmock/gmock.h>

namespace plexus {
namespace {

constexpr const char* kLink =
    R"({"slot_bytes": 8, "call_us": 0.1, "early_us": 0, "bytes": [8, 64], "send_us": [1, 2],
        "recv_us": [1, 2], "combine_us": [1, 2], "combine_apart_us": [1, 3], "copy_us": [0, 0],
        "one_core_bytes": [8, 16], "one_core": [0.5, 1],
        "one_way": {"call_us": 0.2, "send_us": [1, 2], "recv_us": [1, 2], "combine_us": [1, 2],
                    "combine_apart_us": [1, 5]}})";

std::string calibration_of(const std::string& link) {
  return R"({"messages": {"cores": 4, "turn_us": 0.5, "net_turn_us": 0.7, "links": {"host": )" +
         link + "}}}";
}

TEST(SimCalibration, IsReadFromTheFileOfPlexusTune) {
  const auto read = parse_sim_calibration(calibration_of(kLink));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read.value().cores, 4);
  EXPECT_DOUBLE_EQ(read.value().host.both_ways.combine_apart.at(64), 3);
  EXPECT_DOUBLE_EQ(read.value().host.one_way.combine_apart.at(64), 5);
  EXPECT_DOUBLE_EQ(read.value().host.both_ways.call_us, 0.1);
  EXPECT_DOUBLE_EQ(read.value().host.one_way.call_us, 0.2);
  EXPECT_DOUBLE_EQ(read.value().host.one_core.at(12, 1), 0.75);
  EXPECT_DOUBLE_EQ(read.value().host.crowd_us_per_byte.at(12, 3), 3);
  EXPECT_DOUBLE_EQ(read.value().turn_us, 0.5);
  EXPECT_DOUBLE_EQ(read.value().net_turn_us, 0.7);
  EXPECT_EQ(read.value().net.slot_bytes, 0);
}

TEST(SimCalibration, RefusesWhatIsNoCost) {
  const struct {
    const char* from;
    const char* to;
    const char* says;
  } rows[] = {{"\"call_us\": 0.1", "\"call_us\": -1", "call_us"},
              {"[8, 64]", "[64, 8]", "ascend"},
              {"[8, 64]", "[8]", "2 times for 1 sizes"},
              {"[1, 3]", "[1, \"3\"]", "combine_apart_us"},
              {"\"copy_us\"", "\"copied_us\"", "copy_us"},
              {"\"one_way\"", "\"no_way\"", "one_way"},
              {"[1, 5]", "[1]", "1 times for 2 sizes"},
              {"\"call_us\": 0.2", "\"call_us\": \"\"", "call_us"},
              {"[8, 16]", "[8]", "2 numbers for 1 sizes"},
              {"[0.5, 1]", "[0.5, 2]", "one_core"},
              {"\"slot_bytes\": 8", "\"slot_bytes\": 1e300", "slot_bytes"}};
  for (const auto& row : rows) {
    std::string link = kLink;
    link.replace(link.find(row.from), std::string(row.from).size(), row.to);
    const auto read = parse_sim_calibration(calibration_of(link));
    ASSERT_TRUE(read.has_error()) << row.to;
    EXPECT_THAT(read.error().message(), testing::HasSubstr(row.says));
    EXPECT_THAT(read.error().message(), testing::HasSubstr("link host"));
  }
  for (const char* const text :
       {"", "[]", "{}", R"({"messages": 1})", R"({"messages": {"links": {}}})",
        R"({"messages": {"links": [1]}})",
        R"({"messages": {"links": {"host": 1}, "cores": 1, "turn_us": 0}})"}) {
    EXPECT_TRUE(parse_sim_calibration(text).has_error()) << text;
  }
}

}  // namespace
}  // namespace plexus
