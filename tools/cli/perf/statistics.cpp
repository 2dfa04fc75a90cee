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
  const auto least_of = [&](double part) {
    const auto rank = static_cast<size_t>(std::ceil(part * static_cast<double>(count)));
    return times_us[rank - 1];
  };
  double sum = 0;
  double squares = 0;
  for (const double time_us : times_us) {
    sum += time_us;
  }
  const double mean = sum / static_cast<double>(count);
  for (const double time_us : times_us) {
    squares += (time_us - mean) * (time_us - mean);
  }
  constexpr double kP95 = 0.95;
  constexpr double kP99 = 0.99;
  return {.median = (times_us[count / 2] + times_us[(count - 1) / 2]) / 2,
          .min = times_us.front(),
          .p99 = least_of(kP99),
          .p95 = least_of(kP95),
          .max = times_us.back(),
          .mean = mean,
          .deviation = std::sqrt(squares / static_cast<double>(count))};
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
