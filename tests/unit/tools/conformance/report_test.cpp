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
using testing::StartsWith;

constexpr Check kFirst = {"a.first", "is first", "a rule", nullptr};
constexpr Check kSecond = {"a.second", "is second", "another rule", nullptr};

TEST(Report, JsonHasTheKeysOfTheContract) {
  const std::vector<Verdict> verdicts = {{&kFirst, Outcome::kPass, "left by the check", 0.5},
                                         {&kSecond, Outcome::kFail, "broke \xff", 1},
                                         {&kSecond, Outcome::kSkip, "no GPU", 0}};
  const auto json = nlohmann::json::parse(format_json(
      {"lib.so", {PluginKind::kNet, "plexus 1.1", "Socket", "", "", ""}, false}, verdicts));
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

TEST(Report, AFailureShowsItsRuleAndItsGrade) {
  const std::vector<Verdict> verdicts = {{&kFirst, Outcome::kFail, "broke", 0},
                                         {&kSecond, Outcome::kFail, "leaks", 0, Grade::kWeak}};
  EXPECT_THAT(format_verdict(verdicts[0]), StartsWith("fail   a.first"));
  EXPECT_THAT(format_verdict(verdicts[1]), StartsWith("weak   a.second"));
  const std::string failed = format_failures(verdicts);
  EXPECT_THAT(failed, HasSubstr("broke"));
  EXPECT_THAT(failed, HasSubstr("rule: a rule"));
  EXPECT_LT(failed.find("broke"), failed.find("leaks"));
  EXPECT_EQ(format_failures({{&kFirst, Outcome::kPass, "", 0}}), "");
}

TEST(Report, FailuresAreToldOncePerCause) {
  const std::vector<Verdict> verdicts = {
      {&kFirst, Outcome::kFail, "message 3: isend failed with code 2: no room for 300 bytes", 0},
      {&kSecond, Outcome::kFail, "isend failed with code 2: no room for 17 bytes", 0}};
  const std::string failed = format_failures(verdicts);
  EXPECT_THAT(failed, HasSubstr("2 checks, one cause: message 3: isend failed"));
  EXPECT_THAT(failed, Not(HasSubstr("17 bytes")));
  EXPECT_EQ(find_cause("process 1 of the check was killed by SIGSEGV in isend"),
            find_cause("the process was killed by SIGSEGV in isend"));
  EXPECT_NE(find_cause("the process was killed by SIGSEGV in isend"),
            find_cause("the process was killed by SIGSEGV in irecv"));
}

TEST(Report, OnlyWhatBreaksJobsCountsUnlessStrict) {
  const Counts counts = count({{&kFirst, Outcome::kFail, "", 0},
                               {&kFirst, Outcome::kFail, "", 0, Grade::kWeak},
                               {&kFirst, Outcome::kFail, "", 0, Grade::kBeyond}});
  EXPECT_EQ(counts.bad(false), 1u);
  EXPECT_EQ(counts.bad(true), 3u);
  EXPECT_THAT(format_counts(counts), HasSubstr("0 passed, 1 failed, 0 skipped, 1 weak"));
}

TEST(Report, JunitCountsWhatTheExitCodeCounts) {
  const std::vector<Verdict> verdicts = {{&kFirst, Outcome::kPass, "", 0.25},
                                         {&kFirst, Outcome::kFail, "a < b \x01", 1},
                                         {&kSecond, Outcome::kFail, "weak", 1, Grade::kWeak}};
  const Identity identity{PluginKind::kNet, "ncclNetPlugin_v8", "Some", "", "", ""};
  const std::string lenient = format_junit({"lib.so", identity, false}, verdicts);
  EXPECT_THAT(lenient, HasSubstr("tests=\"3\" failures=\"1\" skipped=\"1\""));
  EXPECT_THAT(lenient, HasSubstr("message=\"a &lt; b ?\""));
  EXPECT_THAT(lenient, HasSubstr("name=\"a.first\" time=\"0.250\" />"));
  EXPECT_THAT(lenient, StartsWith("<?xml version=\"1.0\"?>"));
  EXPECT_THAT(format_junit({"lib.so", identity, true}, verdicts),
              HasSubstr("failures=\"2\" skipped=\"0\""));
}

TEST(Report, TheSummaryNamesEachCause) {
  const Identity identity{PluginKind::kNet, "ncclNetPlugin_v8", "Some", "", "", ""};
  const std::string page = format_summary(
      {"/a/lib.so", identity, false}, {{&kFirst, Outcome::kFail, "broke | it", 0, Grade::kWeak}});
  EXPECT_THAT(page, StartsWith("# lib.so: net plugin Some (ncclNetPlugin_v8)"));
  EXPECT_THAT(page, HasSubstr("| weak | broke / it | a.first |"));
}

TEST(KnownLimits, TurnFailuresIntoKnownOnesAndNothingElse) {
  const std::vector<const Check*> all = {&kFirst, &kSecond};
  const auto known = parse_known_limits("# of a library\n\na.second  its \t fault \r\n", all);
  ASSERT_TRUE(known.has_value());
  std::vector<Verdict> verdicts = {{&kFirst, Outcome::kFail, "broke", 0},
                                   {&kSecond, Outcome::kFail, "broke too", 0},
                                   {&kSecond, Outcome::kPass, "", 0}};
  for (Verdict& verdict : verdicts) {
    apply_known_limits(known.value(), verdict);
  }
  EXPECT_EQ(verdicts[0].outcome, Outcome::kFail);
  EXPECT_EQ(verdicts[1].outcome, Outcome::kKnown);
  EXPECT_EQ(verdicts[1].detail, "its \t fault (seen: broke too)");
  EXPECT_EQ(verdicts[2].outcome, Outcome::kPass);
  EXPECT_EQ(count(verdicts).failed, 1u);
  EXPECT_EQ(count(verdicts).known, 1u);
  EXPECT_THAT(format_verdict(verdicts[1]), HasSubstr("known  a.second"));
}

TEST(KnownLimits, NeedAReasonAndACheckThatThereIs) {
  const std::vector<const Check*> all = {&kFirst, &kSecond};
  EXPECT_TRUE(parse_known_limits("a.second", all).has_error());
  EXPECT_TRUE(parse_known_limits("a.third because", all).has_error());
}

Verdict time_out(const Check& check, const char* detail, Grade grade = Grade::kBreaksJobs) {
  return {&check, Outcome::kFail, detail, 15, grade};
}

TEST(TimeOuts, EndAGroupWithTheThirdThatIsAlike) {
  constexpr Check kOther = {"b.first", "is of another group", "a rule", nullptr};
  TimeOuts time_outs;
  time_outs.add(time_out(kFirst, "8 bytes: timed out after 15000 ms: send 1 of 2 is posted"));
  time_outs.add(time_out(kSecond, "timed out after 15000 ms: send 7 of 9 is posted"));
  time_outs.add(time_out(kFirst, "timed out after 15000 ms: receive 1 of 9 is posted"));
  time_outs.add({&kFirst, Outcome::kFail, "broke", 0});
  EXPECT_EQ(time_outs.find(kFirst, Grade::kBreaksJobs), std::nullopt);
  time_outs.add(time_out(kSecond, "timed out after 15000 ms: send 3 of 3 is posted"));
  EXPECT_THAT(time_outs.find(kFirst, Grade::kBreaksJobs).value_or(""),
              StartsWith("not run: 3 checks of this group ended alike: "));
  EXPECT_EQ(time_outs.find(kOther, Grade::kBreaksJobs), std::nullopt);
}

TEST(TimeOuts, OfALighterGradeDoNotHideAGraverFailure) {
  TimeOuts time_outs;
  for (int i = 0; i < 3; ++i) {
    time_outs.add(
        time_out(kFirst, "the process did not end in time: it is in accept", Grade::kWeak));
  }
  EXPECT_EQ(time_outs.find(kSecond, Grade::kBreaksJobs), std::nullopt);
  EXPECT_NE(time_outs.find(kSecond, Grade::kWeak), std::nullopt);
  EXPECT_NE(time_outs.find(kSecond, Grade::kBeyond), std::nullopt);
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
