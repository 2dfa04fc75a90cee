// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/benchmark.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include <fmt/core.h>

namespace plexus::perf {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// One worker's run: the state that all steps share.
class Run {
 public:
  Run(const PerfOptions& options, RankSet& ranks, Control& control)
      : options_(options), ranks_(ranks), control_(control) {}

  Result<Row> measure(const Variant& variant, size_t count, bool in_place);

 private:
  struct Estimate {
    double operation_us;
    double barrier_us;
  };
  /// Both functions return the slowest worker's values.
  Result<Estimate> estimate(int batch);
  Result<std::vector<double>> time(int iterations, int batch);
  Result<int64_t> check(const Row& row);

  const PerfOptions& options_;
  RankSet& ranks_;
  Control& control_;
  Choice choice_{};    // the last timed operation's
  uint64_t seed_ = 1;  // a new one for each check
};

Result<Run::Estimate> Run::estimate(int batch) {
  PLEXUS_TRY(control_.barrier());
  const auto start = Clock::now();
  PLEXUS_TRY(ranks_.run(batch, options_.blocking));
  const double operation_us = us_since(start) / batch;
  PLEXUS_TRY(control_.barrier());
  const auto between = Clock::now();
  PLEXUS_TRY(control_.barrier());
  double values[] = {operation_us, us_since(between)};
  PLEXUS_TRY(control_.fold(values, Fold::kMax));
  return Estimate{.operation_us = values[0], .barrier_us = values[1]};
}

Result<std::vector<double>> Run::time(int iterations, int batch) {
  std::vector<double> times_us(static_cast<size_t>(iterations));
  for (double& time_us : times_us) {
    PLEXUS_TRY(control_.barrier());
    const auto start = Clock::now();
    PLEXUS_TRY(ranks_.run(batch, options_.blocking));
    time_us = us_since(start) / batch;
  }
  choice_ = ranks_.ranks().front()->last_choice();  // before control_ uses the communicator
  for (size_t at = 0; at < times_us.size(); at += Control::kFoldMax) {
    const size_t count = std::min(Control::kFoldMax, times_us.size() - at);
    PLEXUS_TRY(control_.fold(std::span(times_us).subspan(at, count), Fold::kMax));
  }
  return times_us;
}

Result<int64_t> Run::check(const Row& row) {
  double wrong = 0;
  for (int repetition = 0; repetition < options_.check; ++repetition) {
    ++seed_;
    for (const auto& rank : ranks_.ranks()) {
      prepare_operation(rank->check_input(seed_));
    }
    PLEXUS_TRY(control_.barrier());
    PLEXUS_TRY(ranks_.run(1, options_.blocking));
    for (const auto& rank : ranks_.ranks()) {
      const CheckResult result = check_operation(rank->check_input(seed_));
      if (result.wrong != 0 && repetition == 0) {
        fmt::print(stderr, "plexus: rank {}, {} B {} {} {}: {} wrong; first: {}\n", rank->rank(),
                   row.size_bytes, info_of(row.variant.type).name, name_of(row.variant.op),
                   row.in_place ? "in place" : "out of place", result.wrong, result.first);
      }
      wrong += static_cast<double>(result.wrong);
    }
  }
  PLEXUS_TRY(control_.fold(std::span(&wrong, 1), Fold::kSum));
  return static_cast<int64_t>(wrong);
}

Result<Row> Run::measure(const Variant& variant, size_t count, bool in_place) {
  Row row{};
  row.variant = variant;
  row.size_bytes = compute_size_bytes(options_.collective, variant.type, options_.nranks, count);
  row.count = count;
  row.in_place = in_place;
  PLEXUS_TRY(ranks_.choose(variant, count, in_place));
  for (const auto& rank : ranks_.ranks()) {
    rank->clear_buffers();
  }
  PLEXUS_TRY(estimate(1));  // the first call may connect and allocate
  PLEXUS_TRY(guess, estimate(1));
  row.batch = compute_batch(guess.operation_us);
  const int warmup = compute_warmup(options_.warmup, guess.operation_us * row.batch);
  for (int i = 0; i < warmup; ++i) {
    PLEXUS_TRY(warm, estimate(row.batch));
    guess = warm;
    row.batch = compute_batch(guess.operation_us);
  }
  const int iterations =
      compute_iterations(options_.iterations, guess.operation_us * row.batch + guess.barrier_us);
  PLEXUS_TRY(times_us, time(iterations, row.batch));
  row.time_us = summarize(times_us);
  row.algorithm = choice_.algorithm;
  row.protocol = choice_.protocol;
  row.channels = choice_.channels;
  row.wrong = Row::kUnchecked;
  if (options_.check > 0) {
    PLEXUS_TRY(wrong, check(row));
    row.wrong = wrong;
  }
  return row;
}

/// A row to measure.
struct Case {
  Variant variant;
  size_t count;
  bool in_place;
};

std::vector<Case> compute_cases(const PerfOptions& options) {
  const bool has_in_place = info_of(options.collective).in_place;
  std::vector<Case> cases;
  for (const Variant& variant : compute_variants(options)) {
    for (const size_t size_bytes : compute_sizes(options.sizes)) {
      const size_t count =
          compute_count(options.collective, variant.type, options.nranks, size_bytes);
      cases.push_back({.variant = variant, .count = count, .in_place = false});
      if (has_in_place) {
        cases.push_back({.variant = variant, .count = count, .in_place = true});
      }
    }
  }
  return cases;
}

}  // namespace

Result<uint64_t> run_benchmark(const PerfOptions& options,
                               RankSet& ranks,
                               Control& control,
                               const TakeRow& take_row) {
  Run run(options, ranks, control);
  uint64_t wrong_total = 0;
  for (const Case& each : compute_cases(options)) {
    PLEXUS_TRY(row, run.measure(each.variant, each.count, each.in_place));
    wrong_total += row.wrong > 0 ? static_cast<uint64_t>(row.wrong) : 0;
    if (take_row) {
      PLEXUS_TRY(take_row(row));
    }
  }
  PLEXUS_TRY(control.barrier());
  PLEXUS_TRY(ranks.close());
  return wrong_total;
}

size_t compute_largest_bytes(const PerfOptions& options) {
  // The smallest element type rounds the size least.
  const size_t size_bytes = compute_sizes(options.sizes).back();
  return compute_size_bytes(
      options.collective, Type::kInt8, options.nranks,
      compute_count(options.collective, Type::kInt8, options.nranks, size_bytes));
}

}  // namespace plexus::perf
