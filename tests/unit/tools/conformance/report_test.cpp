// SPDX-License-Identifier: Apache-2.0
// The formats that users script against.
#include "tools/conformance/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tools/conformance/bench.hpp"

namespace plexus::conformance {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr Check kFirst = {"a.first", "is first", "a rule", nullptr};
constexpr Check kSecond = {"a.second", "is second", "another rule", nullptr};

TEST(Report, JsonHasTheKeysOfTheContract) {
  const std::vector<Verdict> verdicts = {{&kFirst, Outcome::kPass, "left by the check", 0.5},
                                         {&kSecond, Outcome::kFail, "broke \xff", 1},
                                         {&kSecond, Outcome::kSkip, "no GPU", 0}};
  const auto json = nlohmann::json::parse(
      format_json("lib.so", {PluginKind::kNet, "plexus 1.1", "Socket", ""}, verdicts));
  EXPECT_EQ(json["library"], "lib.so");
  EXPECT_EQ(json["kind"], "net");
  EXPECT_EQ(json["abi"], "plexus 1.1");
  EXPECT_EQ(json["passed"], 1);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["skipped"], 1);
  ASSERT_EQ(json["checks"].size(), 3u);
  EXPECT_EQ(json["checks"][0]["verdict"], "pass");
  EXPECT_EQ(json["checks"][0]["detail"], "");
  EXPECT_EQ(json["checks"][1]["id"], "a.second");
  EXPECT_EQ(json["checks"][1]["title"], "is second");
  EXPECT_EQ(json["checks"][2]["verdict"], "skip");
}

TEST(Report, AFailureShowsItsRule) {
  const std::string failed = format_verdict({&kFirst, Outcome::kFail, "broke", 0});
  EXPECT_THAT(failed, HasSubstr("broke"));
  EXPECT_THAT(failed, HasSubstr("rule: a rule"));
  EXPECT_THAT(format_verdict({&kFirst, Outcome::kPass, "", 0}), Not(HasSubstr("rule")));
}

TEST(KnownLimits, TurnFailuresIntoKnownOnesAndNothingElse) {
  const std::vector<const Check*> all = {&kFirst, &kSecond};
  const auto known = parse_known_limits("# of a library\n\na.second  its \t fault \r\n", all);
  ASSERT_TRUE(known.has_value());
  std::vector<Verdict> verdicts = {{&kFirst, Outcome::kFail, "broke", 0},
                                   {&kSecond, Outcome::kFail, "broke too", 0},
                                   {&kSecond, Outcome::kPass, "", 0}};
  apply_known_limits(known.value(), verdicts);
  EXPECT_EQ(verdicts[0].outcome, Outcome::kFail);
  EXPECT_EQ(verdicts[1].outcome, Outcome::kKnown);
  EXPECT_EQ(verdicts[1].detail, "its \t fault (seen: broke too)");
  EXPECT_EQ(verdicts[2].outcome, Outcome::kPass);
  EXPECT_EQ(count(verdicts).failed, 1u);
  EXPECT_EQ(count(verdicts).known, 1u);
  EXPECT_THAT(format_verdict(verdicts[1]), HasSubstr("known a.second"));
}

TEST(KnownLimits, NeedAReasonAndACheckThatThereIs) {
  const std::vector<const Check*> all = {&kFirst, &kSecond};
  EXPECT_TRUE(parse_known_limits("a.second", all).has_error());
  EXPECT_TRUE(parse_known_limits("a.third because", all).has_error());
}

TEST(Bench, SizesWithoutLatencySayNothingOfIt) {
  const std::vector<BenchRow> rows = {{8, 1.5, 2.5, 0.1}, {1 << 24, 0, 0, 3.5}};
  EXPECT_THAT(format_bench(rows), HasSubstr("1.50"));
  const auto json = nlohmann::json::parse(format_bench_json("lib.so", {}, rows));
  EXPECT_EQ(json["rows"][0]["latency_us"]["median"], 2.5);
  EXPECT_TRUE(json["rows"][1]["latency_us"].is_null());
  EXPECT_EQ(json["rows"][1]["bandwidth_gb_per_s"], 3.5);
}

}  // namespace
}  // namespace plexus::conformance
