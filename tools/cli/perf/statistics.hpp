// SPDX-License-Identifier: Apache-2.0
// Statistics of a row's times, and the size of the batches that `plexus perf` times.
//
// An operation of a few microseconds is shorter than the skew of a barrier, so an iteration of the
// benchmark is a batch of back-to-back operations that lasts about kBatchUs, and its time is
// divided by their number. Long operations are batches of one.
#pragma once

#include <span>

namespace plexus::perf {

struct TimeUs {
  double median = 0;
  double min = 0;
  double p99 = 0;
  double p95 = 0;
  double max = 0;
  double mean = 0;
  double deviation = 0;  // standard deviation
};

/// Sorts `times_us`, which is not empty. The median of an even number is the mean of the middle
/// two; p99 is the smallest time that 99 % of the iterations do not exceed, p95 likewise.
[[nodiscard]] TimeUs summarize(std::span<double> times_us);

/// Operations per iteration, for one that takes about `estimate_us`.
[[nodiscard]] int compute_batch(double estimate_us) noexcept;

/// The user's request for the number of iterations.
struct IterationWish {
  int iterations = 0;    // 0: not given
  double budget_us = 0;  // 0: none; else as many iterations as fit
};
/// Timed iterations of a row, each of about `iteration_us` (the batch and the barrier before it).
[[nodiscard]] int compute_iterations(const IterationWish& wish, double iteration_us) noexcept;

/// Number of warm-up iterations: `wanted`, or fewer if those would take more than a second.
[[nodiscard]] int compute_warmup(int wanted, double iteration_us) noexcept;

inline constexpr double kBatchUs = 100;
inline constexpr int kBatchMax = 200;
inline constexpr int kIterationsDefault = 20;
inline constexpr int kIterationsMax = 100000;

}  // namespace plexus::perf
