// SPDX-License-Identifier: Apache-2.0
// What `plexus top` computes of two reports, and its screen.
#include "tools/cli/top.hpp"

#include <algorithm>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace plexus {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json comm_of(const std::string& hash, int calls) {
  const auto rank = [&](int number, const char* activity) {
    return json{{"rank", number},
                {"activity", activity},
                {"activity_sec", 4},
                {"waits_for", 1},
                {"collective_counts", {{"AllReduce", calls}, {"Broadcast", 10}}}};
  };
  return {{"hash", hash},
          {"size", 3},
          {"missing_ranks_count", 1},
          {"ranks", {rank(0, "waiting"), rank(1, "outside")}}};
}

std::string report_of(int comms, int calls) {
  json report{{"timestamp", "2026-11-27 19:00:00"}, {"communicators", json::array()}};
  for (int i = 0; i < comms; ++i) {
    report["communicators"].push_back(comm_of("0x" + std::to_string(i), calls));
  }
  report["verdicts"] = {
      {{"sentence", std::string(70, 'a') + " " + std::string(70, 'b') + "\x1b[2J"}}};
  return report.dump();
}

TEST(Top, HasCallsRatesAndWhoWaits) {
  const auto top = make_top(report_of(1, 100), report_of(1, 150), 2);
  ASSERT_TRUE(top.has_value());
  const json comm = json::parse(top.value()).at("communicators").at(0);
  EXPECT_EQ(comm.at("calls"), 160);
  EXPECT_DOUBLE_EQ(comm.at("calls_per_sec").get<double>(), 25);
  EXPECT_EQ(comm.at("missing"), 1);
  EXPECT_EQ(comm.at("waiting"), 1);
  EXPECT_EQ(comm.at("wait_sec"), 4);
  EXPECT_EQ(comm.at("waits_for"), 1);
}

TEST(Top, WithoutAnEarlierReportThereIsNoRate) {
  const auto top = make_top("", report_of(1, 150), 0);
  ASSERT_TRUE(top.has_value());
  EXPECT_EQ(json::parse(top.value()).at("communicators").at(0).at("calls_per_sec"), 0);
}

TEST(Top, RefusesWhatIsNoReport) {
  EXPECT_THAT(make_top("", "OK\n", 1).error().message(), HasSubstr("no report"));
  EXPECT_THAT(make_top("", "{}", 1).error().message(), HasSubstr("no report"));
}

TEST(Top, FitsTheTerminal) {
  const auto top = make_top("", report_of(100, 1), 0);
  ASSERT_TRUE(top.has_value());
  for (const auto& [columns, rows] : {std::pair<size_t, size_t>{80, 23}, {40, 5}, {200, 60}}) {
    const std::string screen = draw_top(top.value(), columns, rows);
    std::istringstream lines(screen);
    size_t count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      EXPECT_LE(line.size(), columns);
      EXPECT_THAT(line, testing::Not(HasSubstr("\x1b"))) << "text of the job moves no cursor";
    }
    EXPECT_EQ(count, rows) << columns;
  }
  const std::string screen = draw_top(top.value(), 80, 23);
  EXPECT_THAT(screen, HasSubstr("plexus top  2026-11-27 19:00:00  100 communicators\n"));
  EXPECT_THAT(screen, HasSubstr(std::string(70, 'a') + "\n" + std::string(70, 'b')));
}

}  // namespace
}  // namespace plexus
