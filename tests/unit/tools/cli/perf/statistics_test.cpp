// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/statistics.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace plexus::perf {
namespace {

TEST(Summarize, MedianOfOddAndEvenNumbers) {
  std::vector<double> odd = {3, 1, 2};
  EXPECT_EQ(summarize(odd).median, 2);
  std::vector<double> even = {4, 1, 3, 2};
  EXPECT_EQ(summarize(even).median, 2.5);
}

TEST(Summarize, MeanAndStandardDeviation) {
  std::vector<double> times = {2, 4, 4, 4, 5, 5, 7, 9};
  const TimeUs time = summarize(times);
  EXPECT_DOUBLE_EQ(time.mean, 5);
  EXPECT_DOUBLE_EQ(time.deviation, 2);
  EXPECT_EQ(time.max, 9);
}

TEST(Summarize, OneTimeIsAllThree) {
  std::vector<double> one = {7};
  const TimeUs time = summarize(one);
  EXPECT_EQ(time.median, 7);
  EXPECT_EQ(time.min, 7);
  EXPECT_EQ(time.p99, 7);
}

TEST(Summarize, P99LeavesOutOneInAHundred) {
  std::vector<double> times;
  for (int i = 100; i >= 1; --i) {
    times.push_back(i);
  }
  const TimeUs time = summarize(times);
  EXPECT_EQ(time.min, 1);
  EXPECT_EQ(time.p99, 99);
  EXPECT_EQ(time.p95, 95);
  EXPECT_EQ(time.median, 50.5);
}

TEST(ComputeBatch, LastsATenthOfAMillisecond) {
  EXPECT_EQ(compute_batch(1), 100);
  EXPECT_EQ(compute_batch(25), 4);
  EXPECT_EQ(compute_batch(0), 200);
  EXPECT_EQ(compute_batch(0.1), 200);
  EXPECT_EQ(compute_batch(60), 1);
  EXPECT_EQ(compute_batch(1e6), 1);
}

TEST(ComputeIterations, TakesTheUsersWordWhateverItCosts) {
  EXPECT_EQ(compute_iterations({.iterations = 7, .budget_us = 0}, 1e9), 7);
}

TEST(ComputeIterations, CutsASlowRowShortButKeepsAMedian) {
  EXPECT_EQ(compute_iterations({}, 100), 20);
  EXPECT_EQ(compute_iterations({}, 2e5), 10);
  EXPECT_EQ(compute_iterations({}, 1e8), 3);
}

TEST(ComputeIterations, FillsABudget) {
  EXPECT_EQ(compute_iterations({.iterations = 0, .budget_us = 250e3}, 1000), 250);
  EXPECT_EQ(compute_iterations({.iterations = 0, .budget_us = 250e3}, 1), 3000);
  EXPECT_EQ(compute_iterations({.iterations = 0, .budget_us = 250e3}, 1e6), 5);
}

TEST(ComputeWarmup, IsLeftOutWhenItAloneWouldTakeSeconds) {
  EXPECT_EQ(compute_warmup(5, 100), 5);
  EXPECT_EQ(compute_warmup(5, 5e5), 2);
  EXPECT_EQ(compute_warmup(5, 1e7), 0);
}

}  // namespace
}  // namespace plexus::perf
