// SPDX-License-Identifier: Apache-2.0
#include "plugins/tuner-online/policy.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "guest/assert.hpp"

namespace plexus::tuner_online {
namespace {

constexpr size_t kBase = 0;
constexpr uint32_t kFirstCalls = 6;  // of a trial in the first round: 3 of them are measured
// The last way is kept if it is better than the base by kGainLeast in kWinsLeast of kPairs pairs of
// trials, each of kPairCalls calls or more (a sign test): times of equal calls may differ by more
// than those of algorithms.
constexpr uint32_t kPairCalls = 24;
constexpr size_t kPairs = 5;
constexpr size_t kWinsLeast = 4;
constexpr double kGainLeast = 0.03;

/// What the trials so far say of the ways.
class History {
 public:
  History(std::span<const Way> ways, std::span<const plexus_tuner_trial_t> trials)
      : ways_(ways), trials_(ways.size()) {
    for (const plexus_tuner_trial_t& trial : trials) {
      if (const size_t way = find(trial); way < ways.size()) {
        trials_[way].push_back(trial);
      }
    }
    const double base = base_ns();
    for (const plexus_tuner_trial_t& trial : trials) {  // also those of no way for this size
      if (trial.time_ns >= 0 && base >= 0) {
        by_base_ns_ += trial.calls * base;
        lost_ns_ += trial.calls * (static_cast<double>(trial.time_ns) - base);
      }
    }
  }

  /// Of its longest trial, of equally long ones the shortest time; -1: unknown.
  [[nodiscard]] double time_ns(size_t way) const {
    uint32_t calls = 0;
    double time_ns = -1;
    for (const plexus_tuner_trial_t& trial : trials_[way]) {
      const auto trial_ns = static_cast<double>(trial.time_ns);
      const bool is_better =
          trial.calls > calls || (trial.calls == calls && (time_ns < 0 || trial_ns < time_ns));
      if (trial.time_ns >= 0 && is_better) {
        calls = trial.calls;
        time_ns = trial_ns;
      }
    }
    return time_ns;
  }
  [[nodiscard]] double base_ns() const { return time_ns(kBase); }
  /// Of a way that was not tried yet: as much longer than the base as predicted.
  [[nodiscard]] double expected_ns(size_t way) const {
    const double base = static_cast<double>(std::max<int64_t>(1, ways_[kBase].predicted_ns));
    const double known = time_ns(way);
    return known >= 0 ? known : base_ns() * static_cast<double>(ways_[way].predicted_ns) / base;
  }
  /// By its first trial that is so long: what comes later does not undo a round.
  [[nodiscard]] double expected_ns(size_t way, uint32_t calls) const {
    const std::vector<int64_t> known = times(way, calls);
    return !known.empty() && known.front() >= 0 ? static_cast<double>(known.front())
                                                : expected_ns(way);
  }
  /// Times of its trials that are so long, oldest first.
  [[nodiscard]] std::vector<int64_t> times(size_t way, uint32_t calls) const {
    std::vector<int64_t> times;
    for (const plexus_tuner_trial_t& trial : trials_[way]) {
      if (trial.calls >= calls) {
        times.push_back(trial.time_ns);
      }
    }
    return times;
  }
  /// The way with the shortest known time.
  [[nodiscard]] size_t best() const {
    size_t best = kBase;
    for (size_t way = 0; way < ways_.size(); ++way) {
      best = time_ns(way) >= 0 && time_ns(way) < time_ns(best) ? way : best;
    }
    return best;
  }
  /// What all calls so far may still lose, in ns.
  [[nodiscard]] double left(double budget) const { return budget * by_base_ns_ - lost_ns_; }

 private:
  [[nodiscard]] size_t find(const plexus_tuner_trial_t& trial) const {
    const auto at = std::find_if(ways_.begin(), ways_.end(), [&](const Way& way) {
      return way.algorithm == trial.algorithm && way.protocol == trial.protocol &&
             way.channels == trial.channels;
    });
    return static_cast<size_t>(at - ways_.begin());
  }

  std::span<const Way> ways_;
  std::vector<std::vector<plexus_tuner_trial_t>> trials_;  // by way, oldest first
  double by_base_ns_ = 0;  // what all calls would have taken by the base
  double lost_ns_ = 0;     // what they took longer
};

/// The way that lacks a trial with that many calls: the base, or one of the others in the round.
std::optional<size_t> find_untried(const std::vector<size_t>& others,
                                   const History& history,
                                   uint32_t calls) {
  const auto lacks = [&](size_t way) { return history.times(way, calls).empty(); };
  if (lacks(kBase)) {
    return kBase;
  }
  const auto at = std::find_if(others.begin(), others.end(), lacks);
  return at == others.end() ? std::nullopt : std::optional(*at);
}

/// Use the best way for as long as trying another one for that cost has to wait.
Decision earn(const History& history, double cost_ns, double budget) {
  const size_t best = history.best();
  const double each_ns =
      budget * history.base_ns() + std::max(0.0, history.base_ns() - history.time_ns(best));
  const double calls = std::ceil((cost_ns - history.left(budget)) / std::max(1.0, each_ns));
  return {best, static_cast<uint32_t>(
                    std::clamp(calls, double{kFirstCalls}, double{PLEXUS_TRIAL_CALLS_MAX}))};
}

/// The base against the last way, in as many pairs as it takes.
std::optional<size_t> find_winner(std::span<const int64_t> base,
                                  std::span<const int64_t> last,
                                  size_t last_way) {
  size_t wins = 0;
  size_t losses = 0;
  for (size_t i = 0; i < std::min(base.size(), last.size()); ++i) {
    const double enough_ns = (1 - kGainLeast) * static_cast<double>(base[i]);
    ++(last[i] >= 0 && static_cast<double>(last[i]) < enough_ns ? wins : losses);
  }
  if (wins >= kWinsLeast) {
    return last_way;
  }
  return losses > kPairs - kWinsLeast ? std::optional(kBase) : std::nullopt;
}

}  // namespace

std::vector<Way> list_ways(std::span<const plexus_tuner_candidate_t> candidates,
                           uint64_t size_bytes) {
  std::vector<Way> ways;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const plexus_tuner_candidate_t& each = candidates[i];
    if (each.time_ns >= 0) {
      ways.push_back({i, each.algorithm, each.protocol, each.channels, each.time_ns});
    }
  }
  std::stable_sort(ways.begin(), ways.end(),
                   [](const Way& a, const Way& b) { return a.predicted_ns < b.predicted_ns; });
  if (ways.empty()) {
    return ways;
  }
  const Way base = ways.front();
  const double most_ns = kRatioMax * static_cast<double>(std::max<int64_t>(1, base.predicted_ns));
  std::erase_if(ways,
                [&](const Way& way) { return static_cast<double>(way.predicted_ns) > most_ns; });
  ways.resize(std::min(ways.size(), kWaysMax - 2), base);
  for (const uint32_t factor : {2U, 4U}) {
    Way wide = base;
    wide.channels *= factor;
    if (wide.channels <= candidates[base.candidate].channels_max &&
        size_bytes / wide.channels >= kChannelBytesMin) {
      ways.push_back(wide);
    }
  }
  PLEXUS_DCHECK(ways.size() <= kWaysMax, ways.size());
  return ways;
}

Decision decide(std::span<const Way> ways,
                std::span<const plexus_tuner_trial_t> trials,
                double budget) {
  const History history(ways, trials);
  if (ways.size() == 1 || trials.size() >= PLEXUS_TRIALS_MAX) {
    return {kBase, 0};
  }
  if (history.base_ns() < 0) {
    return {kBase, kFirstCalls};
  }
  const auto try_way = [&](size_t way, uint32_t calls) {
    const double cost_ns = calls * std::max(0.0, history.expected_ns(way) - history.base_ns());
    return cost_ns <= history.left(budget) || way == kBase ? Decision{way, calls}
                                                           : earn(history, cost_ns, budget);
  };
  // The base takes part in every round, so that it is compared with equally long trials.
  std::vector<size_t> others(ways.size() - 1);
  std::iota(others.begin(), others.end(), kBase + 1);
  for (uint32_t calls = kFirstCalls;; calls *= 2) {
    if (const auto next = find_untried(others, history, calls)) {
      return try_way(*next, calls);
    }
    if (others.size() == 1) {
      break;
    }
    std::stable_sort(others.begin(), others.end(), [&](size_t a, size_t b) {
      return history.expected_ns(a, calls) < history.expected_ns(b, calls);
    });
    others.resize((others.size() + 1) / 2);
  }
  const size_t last = others.front();
  const std::vector<int64_t> base_times = history.times(kBase, kPairCalls);
  const std::vector<int64_t> last_times = history.times(last, kPairCalls);
  if (const auto winner = find_winner(base_times, last_times, last)) {
    return {*winner, 0};
  }
  return try_way(base_times.size() <= last_times.size() ? kBase : last, kPairCalls);
}

}  // namespace plexus::tuner_online
