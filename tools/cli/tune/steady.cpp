// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/tune/steady.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

namespace plexus::tune {
namespace {

constexpr double kMoved = 1.5;
// Probes before the first run, and for which all runs together wait, by run.
constexpr int kProbesFirst = 5;
constexpr int kPatience = 8;

const MeasureInput& probe_input() {
  static const MeasureInput kInput{.collective = Collective::kAllGather,
                                   .algorithm = "ring",
                                   .nranks = 2,
                                   .size_bytes = size_t{256} << 10,
                                   .budget_ms = 3};
  return kInput;
}

struct Repetition {
  size_t run;
  std::vector<MeasuredTime> times;
  double probe_us;  // the longer one beside it
};

class Host {
 public:
  explicit Host(const MeasureFunction& measure) : measure_(measure) {}

  Result<void> probe() {
    PLEXUS_TRY(times, measure_(probe_input()));
    const auto least = std::min_element(
        times.begin(), times.end(),
        [](const MeasuredTime& a, const MeasuredTime& b) { return a.median_us < b.median_us; });
    last_us_ = least->median_us;
    least_us_ = std::min(least_us_, last_us_);
    return ok();
  }
  [[nodiscard]] double last_us() const { return last_us_; }
  [[nodiscard]] bool is_near(double probe_us) const { return probe_us <= kMoved * least_us_; }

 private:
  const MeasureFunction& measure_;
  double last_us_ = 0;
  double least_us_ = std::numeric_limits<double>::max();
};

/// Repetitions of all runs until the stage is over, which is no failure.
class Turns {
 public:
  Turns(std::span<SteadyRun> runs, int count, Stage& stage, const MeasureFunction& measure)
      : runs_(runs),
        all_(runs.size() * static_cast<size_t>(count)),
        stage_(stage),
        measure_([this, &measure](const MeasureInput& input) {
          MeasureInput bounded = input;
          bounded.deadline = stage_.deadline();
          return measure(bounded);
        }),
        host_(measure_),
        patience_(kPatience * static_cast<int>(all_)) {}

  Result<void> measure() {
    for (int i = 0; i < kProbesFirst; ++i) {
      PLEXUS_TRY(host_.probe());
    }
    for (; done_ < all_ && !measurements_ended(); ++done_) {
      stage_.report(done_, all_);
      PLEXUS_TRY(measure_one(done_ % runs_.size()));
    }
    return ok();
  }

  [[nodiscard]] int complete() const { return static_cast<int>(done_ / runs_.size()); }
  /// Gives each run the repetitions that count; returns how many runs had none beside near cores.
  int choose() {
    int moved = 0;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const auto is_of_run = [&](const Repetition& one) { return one.run == i; };
      const auto counts = [&](const Repetition& one) {
        return one.run == i && host_.is_near(one.probe_us);
      };
      const bool has_near = std::any_of(repetitions_.begin(), repetitions_.end(), counts);
      const bool has_any = std::any_of(repetitions_.begin(), repetitions_.end(), is_of_run);
      moved += has_any && !has_near ? 1 : 0;
      for (Repetition& one : repetitions_) {
        if (one.run == i && (!has_near || counts(one))) {
          runs_[i].times.push_back(std::move(one.times));
        }
      }
    }
    return moved;
  }

 private:
  [[nodiscard]] bool may_wait() const { return patience_ > 0 && stage_.is_ahead(done_, all_); }

  Result<void> measure_one(size_t run) {
    for (bool counts = false; !counts;) {
      for (; !host_.is_near(host_.last_us()) && may_wait(); --patience_) {
        PLEXUS_TRY(host_.probe());
      }
      const double before_us = host_.last_us();
      PLEXUS_TRY(times, measure_(runs_[run].input));
      PLEXUS_TRY(host_.probe());
      const double probe_us = std::max(before_us, host_.last_us());
      counts = host_.is_near(probe_us) || !may_wait();
      --patience_;
      repetitions_.push_back({.run = run, .times = std::move(times), .probe_us = probe_us});
    }
    return ok();
  }

  std::span<SteadyRun> runs_;
  size_t all_;
  Stage& stage_;
  MeasureFunction measure_;
  Host host_;
  int patience_;
  size_t done_ = 0;
  std::vector<Repetition> repetitions_;
};

}  // namespace

Result<SteadyReport> measure_steadily(std::span<SteadyRun> runs,
                                      int count,
                                      Stage& stage,
                                      const MeasureFunction& measure) {
  Turns turns(runs, count, stage, measure);
  const auto measured = turns.measure();
  if (measured.has_error() && measured.error().code() != Code::kTimeout) {
    return measured.error().clone();
  }
  return SteadyReport{.moved = turns.choose(), .turns = turns.complete()};
}

}  // namespace plexus::tune
