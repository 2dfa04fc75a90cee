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

}  // namespace

Result<int> measure_steadily(std::span<SteadyRun> runs, int count, const MeasureFunction& measure) {
  Host host(measure);
  for (int i = 0; i < kProbesFirst; ++i) {
    PLEXUS_TRY(host.probe());
  }
  std::vector<Repetition> repetitions;
  int patience = kPatience * count * static_cast<int>(runs.size());
  for (int turn = 0; turn < count; ++turn) {
    for (size_t i = 0; i < runs.size(); ++i) {
      for (bool counts = false; !counts;) {
        for (; !host.is_near(host.last_us()) && patience > 0; --patience) {
          PLEXUS_TRY(host.probe());
        }
        const double before_us = host.last_us();
        PLEXUS_TRY(times, measure(runs[i].input));
        PLEXUS_TRY(host.probe());
        const double probe_us = std::max(before_us, host.last_us());
        counts = host.is_near(probe_us) || --patience < 0;
        repetitions.push_back({.run = i, .times = std::move(times), .probe_us = probe_us});
      }
    }
  }
  int moved = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto counts = [&](const Repetition& one) {
      return one.run == i && host.is_near(one.probe_us);
    };
    const bool has_near = std::any_of(repetitions.begin(), repetitions.end(), counts);
    moved += has_near ? 0 : 1;
    for (Repetition& one : repetitions) {
      if (one.run == i && (!has_near || counts(one))) {
        runs[i].times.push_back(std::move(one.times));
      }
    }
  }
  return moved;
}

}  // namespace plexus::tune
