// SPDX-License-Identifier: Apache-2.0
// Which algorithm, protocol and number of channels serve a call: every legal way is a candidate,
// the tuner states times, the shortest wins. Depends only on values that all ranks share, so that
// they agree without talking; the choice is part of what ranks compare (CallRecord::hash).
#pragma once

#include <vector>

#include "core/base/result.hpp"
#include "core/plugin/tuner_plugin.hpp"
#include "core/schedule/algorithm_filter.hpp"
#include "core/schedule/candidate.hpp"

namespace plexus {

/// All ways of this build to do the collective, in the order of the table of algorithms.
std::vector<Candidate> list_candidates(const ChoiceInput& input, const AlgorithmFilter& filter);

/// What is chosen, and the candidates it was chosen from.
struct Decision {
  std::vector<Candidate> candidates;
  size_t chosen;
  bool by_tuner;
};

/// The candidate with the shortest time; without a tuner (nullptr, or one that gave no times), by
/// the built-in rules. kInvalidUsage when no candidate is possible.
Result<Decision> decide(const ChoiceInput& input, const AlgorithmFilter& filter, Tuner* tuner);
Result<Choice> choose_algorithm(const ChoiceInput& input,
                                const AlgorithmFilter& filter,
                                Tuner* tuner);

}  // namespace plexus
