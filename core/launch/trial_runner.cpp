// SPDX-License-Identifier: Apache-2.0
#include "core/launch/trial_runner.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/base/clock.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

/// A program with more kinds of calls than that is not learned about further.
constexpr size_t kKindsMax = 1024;

}  // namespace

/// One call of a trial; tells the profiler what it would have heard.
class OngoingTrial::Watch final : public ExecutionWatch {
 public:
  /// What it is in the trial: the one that connects or the one after it, whose buffers are new to
  /// the caches; one that counts; the one that carries the agreement.
  enum class Part : uint8_t { kWarmsUp, kIsMeasured, kAgrees };

  Watch(std::shared_ptr<Times> times, Part part, std::shared_ptr<ExecutionWatch> next)
      : times_(std::move(times)), part_(part), next_(std::move(next)) {}

  void on_launch(void* /*stream*/, const uint64_t* /*times*/) noexcept override {}
  void on_begin() noexcept override {
    if (next_ != nullptr) {
      next_->on_begin();
    }
    if (part_ == Part::kAgrees) {
      // On several streams the last call may begin before others have ended.
      const int64_t calls = times_->calls.load(std::memory_order_acquire);
      times_->mean_ns = calls == 0 ? 0 : times_->sum_ns.load(std::memory_order_relaxed) / calls;
    }
    began_ = Clock::now();
  }
  void on_item_begin(const WorkQueue::Item& item) noexcept override {
    if (next_ != nullptr) {
      next_->on_item_begin(item);
    }
  }
  void on_item_end(const WorkQueue::Item& item) noexcept override {
    if (next_ != nullptr) {
      next_->on_item_end(item);
    }
  }
  void on_end() noexcept override {
    const std::chrono::nanoseconds took = Clock::now() - began_;
    if (part_ == Part::kIsMeasured) {
      times_->sum_ns.fetch_add(took.count(), std::memory_order_relaxed);
      times_->calls.fetch_add(1, std::memory_order_release);
    }
    if (next_ != nullptr) {
      next_->on_end();
    }
  }

 private:
  std::shared_ptr<Times> times_;
  Part part_;
  std::shared_ptr<ExecutionWatch> next_;  // nullptr: no profiler
  Clock::time_point began_{};
};

Result<void> OngoingTrial::ask(const ChoiceInput& input,
                               const PlanContext& context,
                               uint64_t number) {
  if (is_over()) {
    // 0: no call had ended on any rank.
    series_.end_trial(times_->agreed_ns > 0 ? times_->agreed_ns : -1);
  }
  PLEXUS_TRY(series_.ask(input, *context.filter, context.tuner));
  const bool is_trial = series_.trial_calls() > 0;
  number_ = is_trial ? number : 0;
  made_ = 0;
  times_ = is_trial ? std::make_shared<Times>() : nullptr;
  return ok();
}

std::vector<Task> OngoingTrial::tasks_for(std::span<const Task> tasks) {
  std::vector<Task> all(tasks.begin(), tasks.end());
  if (is_last()) {
    PLEXUS_DCHECK(times_ != nullptr, number_);
    Task agreement;
    agreement.comm = tasks.front().comm;
    agreement.stream = tasks.front().stream;
    agreement.shape = {.collective = Collective::kAllReduce,
                       .type = static_cast<int>(DataType::kInt64),
                       .op = static_cast<int>(ReduceKind::kMax),
                       .count = 1,
                       .has_send = true,
                       .has_recv = true};
    agreement.op = ReduceOp::plain(ReduceKind::kMax);
    agreement.send = &times_->mean_ns;
    agreement.recv = &times_->agreed_ns;
    all.push_back(agreement);
  }
  return all;
}

void OngoingTrial::note_call(Execution& execution) {
  PLEXUS_DCHECK(times_ != nullptr && made_ < series_.trial_calls(), made_, series_.trial_calls());
  const uint32_t warm_up = series_.trial_calls() > PLEXUS_TRIAL_CALLS_MIN ? 2 : 1;
  const Watch::Part part = made_ < warm_up ? Watch::Part::kWarmsUp
                           : is_last()     ? Watch::Part::kAgrees
                                           : Watch::Part::kIsMeasured;
  execution.watch = std::make_shared<Watch>(times_, part, std::move(execution.watch));
  ++made_;
}

Result<TrialRunner::Answer> TrialRunner::find(std::span<const Task> tasks,
                                              const std::function<void()>& wait) {
  const auto is_collective = [](const Task& task) {
    return !is_point_to_point(task.shape.collective);
  };
  const auto call = std::find_if(tasks.begin(), tasks.end(), is_collective);
  if (!measures_ || context_.tuner == nullptr ||
      std::count_if(tasks.begin(), tasks.end(), is_collective) != 1 ||
      call->shape.settings != CallSettings{}) {
    return Answer{};
  }
  const ChoiceInput input = input_of(context_, tasks, *call);
  // An algorithm from a file may suit one of two sizes only.
  const uint64_t size = context_.recorded.empty()
                            ? static_cast<uint64_t>(std::bit_width(input.size_bytes))
                            : input.size_bytes;
  const Kind kind{input.collective, size, input.type, input.kind, input.root};
  const auto known = trials_.find(kind);
  if (known == trials_.end()) {
    return begin(kind, input);
  }
  if (!known->second.has_value()) {
    return Answer{};
  }
  OngoingTrial& trial = *known->second;
  if (trial.is_over()) {
    wait();
    PLEXUS_TRY(trial.ask(input, context_, ntrials_ + 1));
    ntrials_ += trial.number_ == 0 ? 0 : 1;
  }
  return Answer{.made = trial.made_choice(), .trial = trial.number_ == 0 ? nullptr : &trial};
}

/// What the first answer decides, which all ranks ask for in the same call, holds for the kind:
/// they need not have the same plans in their caches later.
Result<TrialRunner::Answer> TrialRunner::begin(const Kind& kind, const ChoiceInput& input) {
  OngoingTrial trial;
  PLEXUS_TRY(trial.ask(input, context_, ntrials_ + 1));
  const bool has_capacity = trials_.size() < kKindsMax;
  if (trial.number_ == 0 || !has_capacity) {
    if (has_capacity) {
      trials_.emplace(kind, std::nullopt);
    }
    return Answer{.made = MadeChoice{trial.series_.choice(), 0}};
  }
  ++ntrials_;
  OngoingTrial& kept = *trials_.emplace(kind, std::move(trial)).first->second;
  return Answer{.made = kept.made_choice(), .trial = &kept};
}

}  // namespace plexus
