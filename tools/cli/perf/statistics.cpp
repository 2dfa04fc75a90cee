// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace plexus::perf {
namespace {

constexpr double kNeverZeroUs = 0.01;
constexpr double kSlowRowUs = 2e6;  // without -n, longer rows get fewer iterations
constexpr double kSlowWarmupUs = 1e6;
constexpr int kSlowIterationsMin = 3;  // enough for a median
constexpr int kBudgetIterationsMin = 5;
constexpr int kBudgetIterationsMax = 3000;

/// How many times `each_us` fits in `total_us`, clamped to `least` .. `most`.
int fit(double total_us, double each_us, int least, int most) noexcept {
  const double times = total_us / std::max(each_us, kNeverZeroUs);
  return times >= most ? most : std::max(least, static_cast<int>(times));
}

}  // namespace

TimeUs summarize(std::span<double> times_us) {
  std::sort(times_us.begin(), times_us.end());
  const size_t count = times_us.size();
  const double upper = times_us[count / 2];
  const double lower = times_us[(count - 1) / 2];
  constexpr double kQuantile = 0.99;
  const auto rank = static_cast<size_t>(std::ceil(kQuantile * static_cast<double>(count)));
  return {.median = (lower + upper) / 2, .min = times_us.front(), .p99 = times_us[rank - 1]};
}

int compute_batch(double estimate_us) noexcept { return fit(kBatchUs, estimate_us, 1, kBatchMax); }

int compute_iterations(const IterationWish& wish, double iteration_us) noexcept {
  if (wish.budget_us > 0) {
    return fit(wish.budget_us, iteration_us, kBudgetIterationsMin, kBudgetIterationsMax);
  }
  if (wish.iterations > 0) {
    return wish.iterations;
  }
  return fit(kSlowRowUs, iteration_us, kSlowIterationsMin, kIterationsDefault);
}

int compute_warmup(int wanted, double iteration_us) noexcept {
  return std::min(wanted, fit(kSlowWarmupUs, iteration_us, 0, kIterationsMax));
}

}  // namespace plexus::perf
