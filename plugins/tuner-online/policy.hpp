// SPDX-License-Identifier: Apache-2.0
// Which alternative to try next, and when to stop: a pure function of predictions and of what the
// trials so far took, so that all ranks decide alike.
//
// The alternative with the shortest prediction is the base: what tuner-default would always use.
// Those with predictions near it take part in rounds of trials, and so does the base; after each
// round the better half goes on, and the next trials are twice as long (successive halving:
// Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization",
// 2016). The last one is then tried in turn with the base, and has to win most of these pairs. An
// alternative is tried only if the calls so far, with that trial, are expected to have taken at
// most `budget` more than the base would have taken for all of them; until then the best
// alternative known is used. What a better alternative saves is earned as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "plugin-api/plexus_tuner.h"

namespace plexus::tuner_online {

/// One of the combinations that the call may be run with.
struct Alternative {
  size_t candidate;  // index
  std::string_view algorithm;
  std::string_view protocol;
  uint32_t channels;
  int64_t predicted_ns;
};

/// What may be tried, the base first: the shortest predictions, at most kAlternativesMax and none
/// of more than kRatioMax times the base's; and the base with more channels, where each of those
/// has enough to move. Empty: there are no predictions.
inline constexpr size_t kAlternativesMax = 8;
inline constexpr double kRatioMax = 4;
inline constexpr uint64_t kChannelBytesMin = uint64_t{256} * 1024;
std::vector<Alternative> list_alternatives(std::span<const plexus_tuner_candidate_t> candidates,
                                           uint64_t size_bytes);

struct Decision {
  size_t alternative;  // index
  uint32_t calls;      // to use it for before the next decision; 0: for good
};

/// `budget`: 0.1 is 10 %. `alternatives` is not empty.
Decision decide(std::span<const Alternative> alternatives,
                std::span<const plexus_tuner_trial_t> trials,
                double budget);

}  // namespace plexus::tuner_online
