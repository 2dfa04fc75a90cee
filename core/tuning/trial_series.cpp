// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/trial_series.hpp"

#include <utility>

namespace plexus {

Result<void> TrialSeries::ask(ChoiceInput input, const AlgorithmFilter& filter, Tuner* tuner) {
  input.trials = trials_;
  PLEXUS_TRY(decision, decide(input, filter, tuner));
  const Candidate& chosen = decision.candidates[decision.chosen];
  const bool may_learn =
      decision.by_tuner && trials_.size() < PLEXUS_TRIALS_MAX && input.calls_in_group == 1;
  choice_ = chosen.choice;
  trial_calls_ = may_learn ? chosen.trial_calls : 0;
  return ok();
}

void TrialSeries::end_trial(int64_t time_ns) {
  trials_.push_back({.choice = choice_,
                     .calls = std::exchange(trial_calls_, 0),
                     .time_ns = time_ns < 0 ? -1 : time_ns});
}

}  // namespace plexus
