// SPDX-License-Identifier: Apache-2.0
// Whatever a check's process does, including a crash or a hang, becomes a verdict. No plugin is
// involved.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/conformance/runner.hpp"

namespace plexus::conformance {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Verdict run(Result<void> (*function)(Fixture&), CheckOptions options = {}) {
  static const Subject kSubject{"/nowhere.so", "", 1, ""};
  const Check check{"test.check", "title", "rule", function, options};
  auto verdict = run_alone(kSubject, check);
  EXPECT_TRUE(verdict.has_value());
  return verdict.value();
}

TEST(Cell, PassesSkipsAndFailsAsTheFunctionSays) {
  EXPECT_EQ(run([](Fixture&) -> Result<void> { return ok(); }).outcome, Outcome::kPass);
  const Verdict skipped = run([](Fixture&) -> Result<void> { return skip("no {}", "GPU"); });
  EXPECT_EQ(skipped.outcome, Outcome::kSkip);
  EXPECT_EQ(skipped.detail, "no GPU");
  const Verdict failed = run([](Fixture&) -> Result<void> { return wrong("{} bytes", 3); });
  EXPECT_EQ(failed.outcome, Outcome::kFail);
  EXPECT_EQ(failed.detail, "3 bytes");
}

TEST(Cell, NamesTheSignalAndTheEntryOfACrash) {
  const Verdict verdict = run([](Fixture& fixture) -> Result<void> {
    fixture.monitor().call(Place::kIsend, [] {
      std::fputs("the plugin was here\n", stderr);
      std::fflush(stderr);
      ::kill(::getpid(), SIGKILL);
      return PLEXUS_OK;
    });
    return ok();
  });
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_THAT(verdict.detail,
              AllOf(HasSubstr("SIGKILL"), HasSubstr("isend"), HasSubstr("the plugin was here")));
}

TEST(Cell, NamesTheEntryOfAHang) {
  const Verdict verdict = run(
      [](Fixture& fixture) -> Result<void> {
        fixture.monitor().call(Place::kConnect, [] {
          while (true) {
            ::pause();
          }
          return PLEXUS_OK;
        });
        return ok();
      },
      {.limit = seconds(0)});
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_THAT(verdict.detail, HasSubstr("did not end in time"));
}

TEST(Cell, SeesAPluginThatEndsTheProcess) {
  const Verdict verdict = run([](Fixture& fixture) -> Result<void> {
    fixture.monitor().call(Place::kTest, []() -> int32_t { std::_Exit(0); });
    return ok();
  });
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_THAT(verdict.detail, AllOf(HasSubstr("exited with code"), HasSubstr("test")));
}

TEST(Cell, PrefersTheReasonToTheOneWhoWaitedForIt) {
  const Verdict verdict = run(
      [](Fixture& fixture) -> Result<void> {
        if (fixture.role() == 1) {
          return wrong("the reason");
        }
        return fixture.peer().meet();
      },
      {.processes = 2});
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.detail, "the reason");
}

TEST(Cell, LetsAProcessDieOnPurpose) {
  const Verdict verdict = run(
      [](Fixture& fixture) -> Result<void> {
        if (fixture.role() == 1) {
          fixture.die();
        }
        return fixture.peer().wait_for_end();
      },
      {.processes = 2});
  EXPECT_EQ(verdict.outcome, Outcome::kPass) << verdict.detail;
}

TEST(Cell, ABreachFailsACheckThatIsContent) {
  const Verdict verdict = run([](Fixture& fixture) -> Result<void> {
    fixture.monitor().report("a breach");
    return ok();
  });
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.detail, "a breach");
}

TEST(Runner, ALibraryThatIsNoneIsOfNoKind) {
  const auto identity = identify({"/nowhere.so", "", 1, ""});
  ASSERT_TRUE(identity.has_value());
  EXPECT_EQ(identity.value().kind, PluginKind::kNone);
  EXPECT_THAT(identity.value().problem, HasSubstr("no such file"));
}

}  // namespace
}  // namespace plexus::conformance
