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
  Result<void> time(int iterations, Row* row);
  Result<int64_t> check(const Row& row);
  /// Runs operations on every rank, one after the other; they are complete on return. Returns the
  /// time until the calls had returned, per operation.
  Result<double> run(int batch);
  /// One time of all workers' for each element.
  Result<void> fold_times(std::span<double> times_us);
  [[nodiscard]] int batch_of(double operation_us) const noexcept;

  const PerfOptions& options_;
  RankSet& ranks_;
  Control& control_;
  Choice choice_{};    // the last timed operation's
  uint64_t seed_ = 1;  // a new one for each check
};

int Run::batch_of(double operation_us) const noexcept {
  const bool alone = options_.blocking == Blocking::kIteration || options_.outputs.per_iteration;
  return alone ? 1 : compute_batch(operation_us * options_.aggregate);
}

Result<double> Run::run(int batch) {
  const bool waits =
      options_.blocking == Blocking::kWait || options_.blocking == Blocking::kWaitAndBarrier;
  double calls_us = 0;
  for (int i = 0; i < batch; ++i) {
    const auto start = Clock::now();
    PLEXUS_TRY(ranks_.start(options_.aggregate));
    calls_us += us_since(start);
    if (waits || i == batch - 1) {
      PLEXUS_TRY(ranks_.wait());
    }
    if (options_.blocking == Blocking::kWaitAndBarrier) {
      PLEXUS_TRY(control_.barrier());
    }
  }
  return calls_us / (batch * options_.aggregate);
}

Result<Run::Estimate> Run::estimate(int batch) {
  PLEXUS_TRY(control_.barrier());
  const auto start = Clock::now();
  PLEXUS_TRY(run(batch));
  const double operation_us = us_since(start) / (batch * options_.aggregate);
  PLEXUS_TRY(control_.barrier());
  const auto between = Clock::now();
  PLEXUS_TRY(control_.barrier());
  double values[] = {operation_us, us_since(between)};
  PLEXUS_TRY(control_.fold(values, Fold::kMax));
  return Estimate{.operation_us = values[0], .barrier_us = values[1]};
}

Result<void> Run::fold_times(std::span<double> times_us) {
  const Average average = options_.average;
  const bool counts = average != Average::kFirst || ranks_.ranks().front()->rank() == 0;
  const int nparts = average == Average::kMean ? compute_workers(options_).count() : 1;
  for (double& time_us : times_us) {
    time_us = counts ? time_us / nparts : 0;
  }
  const Fold how = average == Average::kMost    ? Fold::kMax
                   : average == Average::kLeast ? Fold::kMin
                                                : Fold::kSum;
  for (size_t at = 0; at < times_us.size(); at += Control::kFoldMax) {
    const size_t count = std::min(Control::kFoldMax, times_us.size() - at);
    PLEXUS_TRY(control_.fold(times_us.subspan(at, count), how));
  }
  return ok();
}

Result<void> Run::time(int iterations, Row* row) {
  std::vector<double> times_us(static_cast<size_t>(iterations));
  std::vector<double> calls_us(times_us.size());
  for (size_t i = 0; i < times_us.size(); ++i) {
    PLEXUS_TRY(control_.barrier());
    const auto start = Clock::now();
    PLEXUS_TRY(returned_us, run(row->batch));
    times_us[i] = us_since(start) / (row->batch * options_.aggregate);
    calls_us[i] = returned_us;
  }
  choice_ = ranks_.ranks().front()->last_choice();  // before control_ uses the communicator
  PLEXUS_TRY(fold_times(times_us));
  if (options_.outputs.cpu_time) {
    PLEXUS_TRY(fold_times(calls_us));
  }
  const size_t skipped = options_.outputs.per_iteration
                             ? std::min(static_cast<size_t>(options_.skipped), times_us.size() - 1)
                             : 0;
  row->iterations = iterations;
  row->time_us = summarize(std::span(times_us).subspan(skipped));
  row->cpu_us = summarize(std::span(calls_us).subspan(skipped)).median;
  return ok();
}

Result<int64_t> Run::check(const Row& row) {
  double wrong = 0;
  for (int repetition = 0; repetition < options_.check; ++repetition) {
    ++seed_;
    for (const auto& rank : ranks_.ranks()) {
      prepare_operation(rank->check_input(seed_));
    }
    PLEXUS_TRY(control_.barrier());
    PLEXUS_TRY(ranks_.start(1));
    PLEXUS_TRY(ranks_.wait());
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
  row.size_bytes = compute_size_bytes(make_shape(options_, variant, count));
  row.count = count;
  row.in_place = in_place;
  PLEXUS_TRY(ranks_.choose(variant, count, in_place));
  for (const auto& rank : ranks_.ranks()) {
    rank->clear_buffers();
  }
  PLEXUS_TRY(estimate(1));  // the first call may connect and allocate
  PLEXUS_TRY(guess, estimate(1));
  row.batch = batch_of(guess.operation_us);
  const auto iteration_us = [&] {
    return guess.operation_us * row.batch * options_.aggregate + guess.barrier_us;
  };
  const int warmup = compute_warmup(options_.warmup, iteration_us());
  for (int i = 0; i < warmup; ++i) {
    PLEXUS_TRY(warm, estimate(row.batch));
    guess = warm;
    row.batch = batch_of(guess.operation_us);
  }
  PLEXUS_TRY(time(compute_iterations(options_.iterations, iteration_us()), &row));
  row.algorithm = choice_.algorithm;
  row.protocol = choice_.protocol;
  row.channels = choice_.channels;
  PLEXUS_TRY(estimated_us, ranks_.simulate());
  row.estimated_us = estimated_us;
  row.wrong = Row::kUnchecked;
  if (options_.check > 0 && (!in_place || info_of(options_.collective).in_place)) {
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
  const bool has_in_place = has_in_place_rows(options);
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
  const std::vector<Case> cases = compute_cases(options);
  uint64_t wrong_total = 0;
  for (uint64_t cycle = 0; options.cycles == 0 || cycle < static_cast<uint64_t>(options.cycles);
       ++cycle) {
    for (const Case& each : cases) {
      PLEXUS_TRY(row, run.measure(each.variant, each.count, each.in_place));
      wrong_total += row.wrong > 0 ? static_cast<uint64_t>(row.wrong) : 0;
      if (take_row) {
        PLEXUS_TRY(take_row(row));
      }
    }
  }
  PLEXUS_TRY(control.barrier());
  PLEXUS_TRY(ranks.close());
  return wrong_total;
}

size_t compute_largest_bytes(const PerfOptions& options) {
  // The smallest element type rounds the size least.
  const Variant variant = {.type = Type::kInt8, .op = Op::kSum, .root = -1};
  const size_t size_bytes = compute_sizes(options.sizes).back();
  return compute_size_bytes(
      make_shape(options, variant,
                 compute_count(options.collective, Type::kInt8, options.nranks, size_bytes)));
}

}  // namespace plexus::perf
