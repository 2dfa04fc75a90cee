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
// The last alternative is kept if it is better than the base by kGainLeast in kWinsLeast of kPairs
// pairs of trials, each of kPairCalls calls or more (a sign test): times of equal calls may differ
// by more than those of algorithms.
constexpr uint32_t kPairCalls = 24;
constexpr size_t kPairs = 5;
constexpr size_t kWinsLeast = 4;
constexpr double kGainLeast = 0.03;

/// What the trials so far say of the alternatives.
class History {
 public:
  History(std::span<const Alternative> alternatives, std::span<const plexus_tuner_trial_t> trials)
      : alternatives_(alternatives), trials_(alternatives.size()) {
    for (const plexus_tuner_trial_t& trial : trials) {
      if (const size_t alternative = find(trial); alternative < alternatives.size()) {
        trials_[alternative].push_back(trial);
      }
    }
    const double base = base_ns();
    for (const plexus_tuner_trial_t& trial :
         trials) {  // also those of no alternative for this size
      if (trial.time_ns >= 0 && base >= 0) {
        by_base_ns_ += trial.calls * base;
        lost_ns_ += trial.calls * (static_cast<double>(trial.time_ns) - base);
      }
    }
  }

  /// Its time in its longest trial, the shortest of equally long ones; -1: unknown.
  [[nodiscard]] double time_ns(size_t alternative) const {
    uint32_t calls = 0;
    double time_ns = -1;
    for (const plexus_tuner_trial_t& trial : trials_[alternative]) {
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
  /// An alternative that was not tried yet takes as much longer than the base as predicted.
  [[nodiscard]] double expected_ns(size_t alternative) const {
    const double base =
        static_cast<double>(std::max<int64_t>(1, alternatives_[kBase].predicted_ns));
    const double known = time_ns(alternative);
    return known >= 0
               ? known
               : base_ns() * static_cast<double>(alternatives_[alternative].predicted_ns) / base;
  }
  /// Judges by its first trial that is so long: what comes later does not undo a round.
  [[nodiscard]] double expected_ns(size_t alternative, uint32_t calls) const {
    const std::vector<int64_t> known = times(alternative, calls);
    return !known.empty() && known.front() >= 0 ? static_cast<double>(known.front())
                                                : expected_ns(alternative);
  }
  /// Times of its trials that are so long, oldest first.
  [[nodiscard]] std::vector<int64_t> times(size_t alternative, uint32_t calls) const {
    std::vector<int64_t> times;
    for (const plexus_tuner_trial_t& trial : trials_[alternative]) {
      if (trial.calls >= calls) {
        times.push_back(trial.time_ns);
      }
    }
    return times;
  }
  /// The alternative with the shortest known time.
  [[nodiscard]] size_t best() const {
    size_t best = kBase;
    for (size_t alternative = 0; alternative < alternatives_.size(); ++alternative) {
      best = time_ns(alternative) >= 0 && time_ns(alternative) < time_ns(best) ? alternative : best;
    }
    return best;
  }
  /// What all calls so far may still lose, in ns.
  [[nodiscard]] double left(double budget) const { return budget * by_base_ns_ - lost_ns_; }

 private:
  [[nodiscard]] size_t find(const plexus_tuner_trial_t& trial) const {
    const auto at = std::find_if(
        alternatives_.begin(), alternatives_.end(), [&](const Alternative& alternative) {
          return alternative.algorithm == trial.algorithm &&
                 alternative.protocol == trial.protocol && alternative.channels == trial.channels;
        });
    return static_cast<size_t>(at - alternatives_.begin());
  }

  std::span<const Alternative> alternatives_;
  std::vector<std::vector<plexus_tuner_trial_t>> trials_;  // by alternative, oldest first
  double by_base_ns_ = 0;  // what all calls would have taken by the base
  double lost_ns_ = 0;     // what they took longer
};

/// The alternative that lacks a trial with that many calls: the base, or one of the others in the
/// round.
std::optional<size_t> find_untried(const std::vector<size_t>& others,
                                   const History& history,
                                   uint32_t calls) {
  const auto lacks = [&](size_t alternative) { return history.times(alternative, calls).empty(); };
  if (lacks(kBase)) {
    return kBase;
  }
  const auto at = std::find_if(others.begin(), others.end(), lacks);
  return at == others.end() ? std::nullopt : std::optional(*at);
}

/// Use the best alternative for as long as trying another one for that cost has to wait.
Decision earn(const History& history, double cost_ns, double budget) {
  const size_t best = history.best();
  const double each_ns =
      budget * history.base_ns() + std::max(0.0, history.base_ns() - history.time_ns(best));
  const double calls = std::ceil((cost_ns - history.left(budget)) / std::max(1.0, each_ns));
  return {best, static_cast<uint32_t>(
                    std::clamp(calls, double{kFirstCalls}, double{PLEXUS_TRIAL_CALLS_MAX}))};
}

/// The base against the last alternative, in as many pairs as it takes.
std::optional<size_t> find_winner(std::span<const int64_t> base,
                                  std::span<const int64_t> last,
                                  size_t last_alternative) {
  size_t wins = 0;
  size_t losses = 0;
  for (size_t i = 0; i < std::min(base.size(), last.size()); ++i) {
    const double enough_ns = (1 - kGainLeast) * static_cast<double>(base[i]);
    ++(last[i] >= 0 && static_cast<double>(last[i]) < enough_ns ? wins : losses);
  }
  if (wins >= kWinsLeast) {
    return last_alternative;
  }
  return losses > kPairs - kWinsLeast ? std::optional(kBase) : std::nullopt;
}

}  // namespace

std::vector<Alternative> list_alternatives(std::span<const plexus_tuner_candidate_t> candidates,
                                           uint64_t size_bytes) {
  std::vector<Alternative> alternatives;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const plexus_tuner_candidate_t& each = candidates[i];
    if (each.time_ns >= 0) {
      alternatives.push_back({i, each.algorithm, each.protocol, each.channels, each.time_ns});
    }
  }
  std::stable_sort(
      alternatives.begin(), alternatives.end(),
      [](const Alternative& a, const Alternative& b) { return a.predicted_ns < b.predicted_ns; });
  if (alternatives.empty()) {
    return alternatives;
  }
  const Alternative base = alternatives.front();
  const double most_ns = kRatioMax * static_cast<double>(std::max<int64_t>(1, base.predicted_ns));
  std::erase_if(alternatives, [&](const Alternative& alternative) {
    return static_cast<double>(alternative.predicted_ns) > most_ns;
  });
  alternatives.resize(std::min(alternatives.size(), kAlternativesMax - 2), base);
  for (const uint32_t factor : {2U, 4U}) {
    Alternative wide = base;
    wide.channels *= factor;
    if (wide.channels <= candidates[base.candidate].channels_max &&
        size_bytes / wide.channels >= kChannelBytesMin) {
      alternatives.push_back(wide);
    }
  }
  PLEXUS_DCHECK(alternatives.size() <= kAlternativesMax, alternatives.size());
  return alternatives;
}

Decision decide(std::span<const Alternative> alternatives,
                std::span<const plexus_tuner_trial_t> trials,
                double budget) {
  const History history(alternatives, trials);
  if (alternatives.size() == 1 || trials.size() >= PLEXUS_TRIALS_MAX) {
    return {kBase, 0};
  }
  if (history.base_ns() < 0) {
    return {kBase, kFirstCalls};
  }
  const auto try_alternative = [&](size_t alternative, uint32_t calls) {
    const double cost_ns =
        calls * std::max(0.0, history.expected_ns(alternative) - history.base_ns());
    return cost_ns <= history.left(budget) || alternative == kBase ? Decision{alternative, calls}
                                                                   : earn(history, cost_ns, budget);
  };
  // The base takes part in every round, so that it is compared with equally long trials.
  std::vector<size_t> others(alternatives.size() - 1);
  std::iota(others.begin(), others.end(), kBase + 1);
  for (uint32_t calls = kFirstCalls;; calls *= 2) {
    if (const auto next = find_untried(others, history, calls)) {
      return try_alternative(*next, calls);
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
  return try_alternative(base_times.size() <= last_times.size() ? kBase : last, kPairCalls);
}

}  // namespace plexus::tuner_online
