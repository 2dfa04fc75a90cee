// SPDX-License-Identifier: Apache-2.0
// Chooses algorithm, protocol and number of channels of a call: every combination is a candidate,
// the tuner predicts times, the shortest time wins. The choice depends only on values that all
// ranks share, so that ranks agree without communication; it is also part of what ranks compare
// (CallRecord::hash).
//
//   const ChoiceInput input{.collective = Collective::kAllReduce, .size_bytes = 1 << 20, .nranks =
//   8}; PLEXUS_TRY(decision, decide(input, filter, nullptr));  // without a tuner return
//   decision.candidates[decision.chosen].choice;
#pragma once

#include <vector>

#include "core/base/result.hpp"
#include "core/plugin/tuner_plugin.hpp"
#include "core/tuning/algorithm_filter.hpp"
#include "core/tuning/candidate.hpp"

namespace plexus {

/// All candidates for the collective, in the order of the algorithm table, then those from files.
std::vector<Candidate> list_candidates(const ChoiceInput& call, const AlgorithmFilter& filter);

/// The choice, and the candidates that it was made from.
struct Decision {
  std::vector<Candidate> candidates;
  size_t chosen;
  bool by_tuner;
};

/// Chooses the candidate with the shortest time; without a tuner (nullptr, or one that gave no
/// times), by the built-in rules. kInvalidUsage when no candidate is possible; kInvalidArgument
/// when that is due to the call's selection.
Result<Decision> decide(const ChoiceInput& input, const AlgorithmFilter& filter, Tuner* tuner);
Result<Choice> choose_algorithm(const ChoiceInput& input,
                                const AlgorithmFilter& filter,
                                Tuner* tuner);

}  // namespace plexus
