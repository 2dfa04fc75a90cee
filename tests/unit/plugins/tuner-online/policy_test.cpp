// SPDX-License-Identifier: Apache-2.0
// The policy against made-up truths: it ends, finds the best alternative, and loses no more than
// its budget and one trial.
#include "plugins/tuner-online/policy.hpp"

#include <algorithm>
#include <array>
#include <random>

#include <gtest/gtest.h>

namespace plexus::tuner_online {
namespace {

constexpr std::array kNames = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};

plexus_tuner_candidate_t candidate_of(size_t index, int64_t predicted_ns) {
  plexus_tuner_candidate_t candidate{};
  candidate.struct_size = sizeof(candidate);
  candidate.algorithm = kNames[index];
  candidate.protocol = "Simple";
  candidate.channels = candidate.channels_min = 1;
  candidate.channels_max = 4;
  candidate.time_ns = predicted_ns;
  return candidate;
}

std::vector<Alternative> alternatives_of(const std::vector<int64_t>& predicted,
                                         uint64_t size_bytes = 8) {
  static std::vector<plexus_tuner_candidate_t>
      candidates;  // the alternatives borrow its names only
  candidates.clear();
  for (size_t i = 0; i < predicted.size(); ++i) {
    candidates.push_back(candidate_of(i, predicted[i]));
  }
  return list_alternatives(candidates, size_bytes);
}

struct Learned {
  std::vector<plexus_tuner_trial_t> trials;
  size_t settled = 0;
  double calls = 0;
  double spent_ns = 0;
  double lost_most_ns = 0;  // above (1 + budget) times the base, after any trial
};

/// Follows the policy until it settles; `truth`: the time of each alternative.
template <class Truth>
Learned follow(const std::vector<Alternative>& alternatives, double budget, const Truth& truth) {
  Learned run;
  for (;;) {
    const Decision decision = decide(alternatives, run.trials, budget);
    EXPECT_LT(decision.alternative, alternatives.size());
    if (decision.calls == 0) {
      run.settled = decision.alternative;
      return run;
    }
    EXPECT_LT(run.trials.size(), size_t{PLEXUS_TRIALS_MAX});
    const Alternative& alternative = alternatives[decision.alternative];
    const int64_t time_ns = truth(decision.alternative);
    run.trials.push_back({.algorithm = alternative.algorithm.data(),
                          .protocol = alternative.protocol.data(),
                          .channels = alternative.channels,
                          .chunk_bytes = 0,
                          .calls = decision.calls,
                          .reserved = 0,
                          .time_ns = time_ns});
    run.calls += decision.calls;
    run.spent_ns += decision.calls * static_cast<double>(time_ns);
    run.lost_most_ns = std::max(
        run.lost_most_ns, run.spent_ns - (1 + budget) * run.calls * static_cast<double>(truth(0)));
  }
}

TEST(OnlinePolicy, StartsWithTheShortestPrediction) {
  const auto alternatives = alternatives_of({300, 100, -1, 200});
  ASSERT_EQ(alternatives.size(), 3U);
  EXPECT_EQ(alternatives.front().algorithm, "b");
  EXPECT_EQ(decide(alternatives, {}, 0.1).alternative, 0U);
  EXPECT_GT(decide(alternatives, {}, 0.1).calls, 0U);
}

TEST(OnlinePolicy, LeavesOutWhatIsPredictedFarFromTheBest) {
  EXPECT_EQ(alternatives_of({100, 401, 399}).size(), 2U);
  EXPECT_LE(alternatives_of({1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 1 << 30).size(), kAlternativesMax);
}

TEST(OnlinePolicy, TriesMoreChannelsForLargeMessages) {
  const auto alternatives = alternatives_of({100}, 2 * kChannelBytesMin);
  ASSERT_EQ(alternatives.size(), 2U);
  EXPECT_EQ(alternatives[1].channels, 2U);
}

TEST(OnlinePolicy, TheOnlyAlternativeIsNotTried) {
  EXPECT_EQ(decide(alternatives_of({100}), {}, 0.1).calls, 0U);
  EXPECT_TRUE(alternatives_of({-1, -1}).empty());
}

TEST(OnlinePolicy, FindsTheBestWhateverWasPredicted) {
  const std::vector<int64_t> truth = {1000, 900, 4000, 500, 1200};
  for (const double budget : {0.01, 0.1, 1.0, 10.0}) {
    const Learned run = follow(alternatives_of({100, 110, 120, 130, 140}), budget,
                               [&](size_t alternative) { return truth[alternative]; });
    EXPECT_EQ(run.settled, 3U) << budget;
  }
}

TEST(OnlinePolicy, StaysWithTheBaseForASmallGain) {
  const std::vector<int64_t> truth = {1000, 980, 2000};
  EXPECT_EQ(follow(alternatives_of({100, 110, 120}), 0.1,
                   [&](size_t alternative) { return truth[alternative]; })
                .settled,
            0U);
}

/// What it loses above its budget is at most one trial of the first round, of an alternative that
/// takes longer than predicted.
TEST(OnlinePolicy, KeepsToItsBudget) {
  constexpr uint32_t kSeed = 1;
  constexpr int kTruths = 300;
  std::mt19937 random(kSeed);
  for (int i = 0; i < kTruths; ++i) {
    std::vector<int64_t> predicted;
    std::vector<int64_t> truth;
    for (int alternative = 0; alternative < 6; ++alternative) {
      predicted.push_back(1000 + 10 * alternative);
      truth.push_back(std::uniform_int_distribution<int64_t>(500, 20000)(random));
    }
    const double budget = i % 2 == 0 ? 0.05 : 0.5;
    const Learned run = follow(alternatives_of(predicted), budget,
                               [&](size_t alternative) { return truth[alternative]; });
    const double longest = static_cast<double>(*std::max_element(truth.begin(), truth.end()));
    EXPECT_LE(run.lost_most_ns, 6 * (longest - static_cast<double>(truth[0])) + 1)
        << "seed " << kSeed << ", truth " << i;
    const auto best = std::min_element(truth.begin(), truth.end());
    EXPECT_LE(static_cast<double>(truth[run.settled]), static_cast<double>(*best) / 0.97)
        << "seed " << kSeed << ", truth " << i;
  }
}

TEST(OnlinePolicy, EndsWithUnknownTimesAndWithNoise) {
  follow(alternatives_of({100, 110, 120}), 0.1, [](size_t) { return int64_t{-1}; });
  std::mt19937 random(2);
  const Learned run =
      follow(alternatives_of({100, 110, 120, 130, 140, 150}), 0.01, [&](size_t alternative) {
        return std::uniform_int_distribution<int64_t>(1000,
                                                      alternative == 2 ? 1500 : 100'000)(random);
      });
  EXPECT_LT(run.settled, 6U);
}

/// Times of equal trials that differ by more than those of the alternatives: an alternative that
/// takes a tenth longer than the base is hardly ever kept, and one that takes a third less found
/// more often than not.
TEST(OnlinePolicy, IsNotFooledByNoise) {
  constexpr uint32_t kSeed = 3;
  constexpr int kTruths = 500;
  std::mt19937 random(kSeed);
  int kept_worse = 0;
  int found = 0;
  int to_find = 0;
  for (int i = 0; i < kTruths; ++i) {
    std::vector<int64_t> predicted;
    std::vector<double> truth;
    for (int alternative = 0; alternative < 6; ++alternative) {
      predicted.push_back(1000 + 10 * alternative);
      truth.push_back(std::uniform_real_distribution(0.6, 1.6)(random));
    }
    truth[0] = 1;
    const Learned run = follow(alternatives_of(predicted), 0.1, [&](size_t alternative) {
      const int luck = std::uniform_int_distribution(0, 9)(random);
      const double factor = luck < 2 ? 0.6 : (luck < 4 ? 1.8 : 1);  // how cores were shared
      return static_cast<int64_t>(1e5 * truth[alternative] * factor);
    });
    kept_worse += truth[run.settled] > 1.1 ? 1 : 0;
    const bool can_find = *std::min_element(truth.begin(), truth.end()) < 0.7;
    to_find += can_find ? 1 : 0;
    found += can_find && truth[run.settled] < 0.9 ? 1 : 0;
  }
  EXPECT_LE(kept_worse, kTruths / 50) << "seed " << kSeed;
  EXPECT_GE(found, to_find / 2) << "seed " << kSeed;
}

}  // namespace
}  // namespace plexus::tuner_online
