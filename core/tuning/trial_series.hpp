// SPDX-License-Identifier: Apache-2.0
// What a tuner that learns (plexus_tuner.h: trials) finds out about one kind of call. Its answer is
// a trial: it holds for some calls, after which it is told their time and asked again, until an
// answer holds for good. Knows nothing of who makes the calls and measures them: a communicator
// (core/launch/trial_runner.hpp) or a simulator. Pure but for the tuner.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/result.hpp"
#include "core/tuning/choose_algorithm.hpp"

namespace plexus {

class TrialSeries {
 public:
  /// Asks for the next choice, with all trials so far. `input` describes the next call.
  Result<void> ask(ChoiceInput input, const AlgorithmFilter& filter, Tuner* tuner);
  /// The answer, once asked.
  [[nodiscard]] const Choice& choice() const noexcept { return choice_; }
  /// For how many calls it holds; 0: for good.
  [[nodiscard]] uint32_t trial_calls() const noexcept { return trial_calls_; }
  /// Those calls were made and took `time_ns` each (-1: unknown), which all ranks agree on.
  void end_trial(int64_t time_ns);
  [[nodiscard]] const std::vector<Trial>& trials() const noexcept { return trials_; }

 private:
  std::vector<Trial> trials_;
  Choice choice_{};
  uint32_t trial_calls_ = 0;
};

}  // namespace plexus
