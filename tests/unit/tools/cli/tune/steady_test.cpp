// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/tune/steady.hpp"

#include <chrono>

#include <gtest/gtest.h>

namespace plexus::tune {
namespace {

constexpr double kNear = 10;
constexpr double kFar = 40;

/// A host whose cores are far from each other for some of the measurements, which `is_far` says by
/// their number. Measurements of `algorithm` "slow" take 3 times as long as probes.
class MovingHost {
 public:
  explicit MovingHost(std::function<bool(int)> is_far) : is_far_(std::move(is_far)) {}

  Result<std::vector<MeasuredTime>> measure(const MeasureInput& input) {
    const double us = is_far_(measured_++) ? kFar : kNear;
    const double time_us = input.algorithm == "slow" ? 3 * us : us;
    return std::vector<MeasuredTime>{
        {.size_bytes = 8, .in_place = false, .median_us = time_us, .least_us = time_us}};
  }
  MeasureFunction function() {
    return [this](const MeasureInput& input) { return measure(input); };
  }
  [[nodiscard]] int measured() const { return measured_; }

 private:
  std::function<bool(int)> is_far_;
  int measured_ = 0;
};

std::vector<SteadyRun> two_runs() {
  return {{.input = {.algorithm = "slow"}}, {.input = {.algorithm = "slow"}}};
}

SteadyReport measure(std::vector<SteadyRun>& runs, int count, MovingHost& host) {
  Stage stage("runs", Deadline::never());
  return measure_steadily(runs, count, stage, host.function()).value();
}

void expect_all(const std::vector<SteadyRun>& runs, size_t count, double us) {
  for (const SteadyRun& run : runs) {
    EXPECT_EQ(run.times.size(), count);
    for (const auto& times : run.times) {
      EXPECT_EQ(times.front().median_us, us);
    }
  }
}

TEST(MeasureSteadily, MeasuresEachRunSoOftenOnAQuietHost) {
  MovingHost host([](int) { return false; });
  auto runs = two_runs();
  EXPECT_EQ(measure(runs, 3, host).moved, 0);
  expect_all(runs, 3, 3 * kNear);
}

TEST(MeasureSteadily, WaitsUntilTheCoresAreNearAgain) {
  MovingHost host([](int number) { return number >= 6 && number < 20; });
  auto runs = two_runs();
  EXPECT_EQ(measure(runs, 3, host).moved, 0);
  expect_all(runs, 3, 3 * kNear);
}

TEST(MeasureSteadily, DropsWhatItTookForNearBeforeTheCoresWereNearer) {
  MovingHost host([](int number) { return number < 12; });
  auto runs = two_runs();
  EXPECT_EQ(measure(runs, 4, host).moved, 0);
  for (const SteadyRun& run : runs) {
    EXPECT_GE(run.times.size(), 1U);
    EXPECT_LT(run.times.size(), 4U);
    EXPECT_EQ(run.times.front().front().median_us, 3 * kNear);
  }
}

TEST(MeasureSteadily, EndsOnAHostThatStaysFarAndSaysSo) {
  MovingHost host([](int number) { return number > 4; });
  auto runs = two_runs();
  EXPECT_EQ(measure(runs, 3, host).moved, 2);
  for (const SteadyRun& run : runs) {
    EXPECT_GE(run.times.size(), 3U);
  }
  EXPECT_LT(host.measured(), 100);
}

TEST(MeasureSteadily, TellsWhyNothingCouldBeMeasured) {
  auto runs = two_runs();
  Stage stage("nothing", Deadline::never());
  const auto measured = measure_steadily(runs, 1, stage, [](const MeasureInput&) {
    return Result<std::vector<MeasuredTime>>(fail(Code::kSystemError, "no"));
  });
  ASSERT_TRUE(measured.has_error());
  EXPECT_EQ(measured.error().code(), Code::kSystemError);
}

TEST(MeasureSteadily, KeepsWhatWasMeasuredWhenTimeIsUp) {
  Stage stage("runs", Deadline::after(std::chrono::hours(1)));
  int left = 5 + 2 * 5;  // the first probes, then each of five repetitions and the probe after it
  auto runs = two_runs();
  const auto report = measure_steadily(runs, 4, stage, [&](const MeasureInput& input) {
    EXPECT_EQ(input.deadline.time(), stage.deadline().time());
    if (left-- == 0) {
      return Result<std::vector<MeasuredTime>>(fail(Code::kTimeout, "time is up"));
    }
    return Result<std::vector<MeasuredTime>>(std::vector<MeasuredTime>{
        {.size_bytes = 8, .in_place = false, .median_us = kNear, .least_us = kNear}});
  });
  EXPECT_EQ(report.value().turns, 2);
  EXPECT_EQ(report.value().moved, 0);
  EXPECT_EQ(runs[0].times.size(), 3U);
  EXPECT_EQ(runs[1].times.size(), 2U);
}

TEST(MeasureSteadily, DoesNotWaitForCoresWhenItsTimeIsShort) {
  MovingHost host([](int number) { return number > 4; });
  Stage stage("runs", Deadline::after(std::chrono::seconds(0)));  // behind from the start
  auto runs = two_runs();
  const auto report = measure_steadily(runs, 3, stage, host.function()).value();
  EXPECT_EQ(report.turns, 3);  // a real measurement would end at the deadline
  EXPECT_EQ(report.moved, 2);
  EXPECT_EQ(host.measured(), 5 + 2 * 3 * 2);
}

}  // namespace
}  // namespace plexus::tune
