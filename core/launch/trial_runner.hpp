// SPDX-License-Identifier: Apache-2.0
// A tuner that learns (core/tuning/trial_series.hpp) in a communicator: its trials are counted
// and measured, and ranks agree on their times.
//
// Agreement: calls that are alike, which all ranks make in the same order, count up to the end of a
// trial. The first connects, and the next is not measured either, the last carries the agreement:
// in one group with it runs an all-reduce of how long those between took each rank on average, with
// the greatest of all ranks. (Where ranks share cores, a call may take one rank no time and another
// a turn of its core; calls in a row take all ranks the same on average.) So no call waits for
// anything but itself, and each rank has the same time when the next one asks the tuner. A call
// that has to ask waits until what is on the communicator's streams is done.
//
// Threads: as the communicator's calls; what is measured is written by whoever runs the call.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "core/schedule/plan.hpp"
#include "core/tuning/trial_series.hpp"

namespace plexus {

/// The trial under way of one kind of call.
class OngoingTrial {
 public:
  /// Has the trial had all of its calls?
  [[nodiscard]] bool is_over() const noexcept {
    return series_.trial_calls() > 0 && made_ == series_.trial_calls();
  }
  [[nodiscard]] MadeChoice made_choice() const noexcept { return {series_.choice(), number_}; }
  /// What to run for a group of the user's with one call of this kind.
  [[nodiscard]] std::vector<Task> tasks_for(std::span<const Task> tasks);
  /// The group is prepared in `execution`, and runs next.
  void note_call(Execution& execution);

 private:
  friend class TrialRunner;
  struct Times {
    std::atomic<int64_t> sum_ns{0};  // of this rank's calls that were measured
    std::atomic<int64_t> calls{0};   // number of those
    int64_t mean_ns = 0;             // what this rank tells the others
    int64_t agreed_ns = 0;
  };
  class Watch;
  Result<void> ask(const ChoiceInput& input, const PlanContext& context, uint64_t number);
  [[nodiscard]] bool is_last() const noexcept { return made_ + 1 == series_.trial_calls(); }

  TrialSeries series_;
  uint64_t number_ = 0;           // of the trial; 0: the choice holds for good
  uint32_t made_ = 0;             // calls of the trial
  std::shared_ptr<Times> times_;  // of the trial, whose calls may be on a stream; null: no trial
};

class TrialRunner {
 public:
  /// `measures`: calls may be measured on all ranks.
  TrialRunner(const PlanContext& context, bool measures) : context_(context), measures_(measures) {}

  /// The choice for a group's only collective, and its trial, if there is one.
  struct Answer {
    std::optional<MadeChoice> made;  // nullopt: to be chosen when planned
    OngoingTrial* trial = nullptr;   // nullptr: the choice holds for good
  };
  /// `wait`: blocks until all calls that were made have ended.
  Result<Answer> find(std::span<const Task> tasks, const std::function<void()>& wait);
  /// What the tuner was told has changed: all kinds of calls are learned about anew. Requires that
  /// all ranks come here before the same call.
  void forget() noexcept { trials_.clear(); }

 private:
  /// Collective, size, type, reduction, root.
  using Kind = std::tuple<Collective, uint64_t, DataType, ReduceKind, int>;

  Result<Answer> begin(const Kind& kind, const ChoiceInput& input);

  const PlanContext& context_;
  bool measures_;
  uint64_t ntrials_ = 0;
  std::map<Kind, std::optional<OngoingTrial>>
      trials_;  // nullopt: the tuner tries nothing for the kind
};

}  // namespace plexus
