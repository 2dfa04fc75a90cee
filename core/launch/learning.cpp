// SPDX-License-Identifier: Apache-2.0
#include "core/launch/learning.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/base/clock.hpp"

namespace plexus {
namespace {

/// A program with more kinds of calls than that is not learned about further.
constexpr size_t kKindsMax = 1024;

}  // namespace

/// Measures one call, and tells the profiler what it would have heard.
class Course::Watch final : public ExecutionWatch {
 public:
  Watch(std::shared_ptr<Times> times, size_t slot, std::shared_ptr<ExecutionWatch> next)
      : times_(std::move(times)), slot_(slot), next_(std::move(next)) {}

  void on_launch(void* /*stream*/, const uint64_t* /*times*/) noexcept override {}
  void on_begin() noexcept override {
    if (next_ != nullptr) {
      next_->on_begin();
    }
    if (slot_ == kAgrees) {
      for (size_t i = 0; i < kMeasuredMax; ++i) {
        times_->sent[i] = times_->measured[i].load(std::memory_order_relaxed);
      }
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
    if (slot_ < kMeasuredMax) {
      times_->measured[slot_].store(took.count(), std::memory_order_relaxed);
    }
    if (next_ != nullptr) {
      next_->on_end();
    }
  }

  static constexpr size_t kIgnores = kMeasuredMax;     // a slot that is none: not measured
  static constexpr size_t kAgrees = kMeasuredMax + 1;  // the call carries the agreement

 private:
  std::shared_ptr<Times> times_;
  size_t slot_;
  std::shared_ptr<ExecutionWatch> next_;  // nullptr: no profiler
  Clock::time_point began_{};
};

Result<void> Course::ask(const ChoiceInput& input, const PlanContext& context, uint64_t number) {
  if (is_over()) {
    lesson_.end_trial(agreed_time());
  }
  PLEXUS_TRY(lesson_.ask(input, *context.filter, context.tuner));
  const bool is_trial = lesson_.trial_calls() > 0;
  number_ = is_trial ? number : 0;
  made_ = 0;
  times_ = is_trial ? std::make_shared<Times>() : nullptr;
  return ok();
}

/// The median of what is known.
int64_t Course::agreed_time() const {
  std::vector<int64_t> known(
      times_->agreed.begin(),
      times_->agreed.begin() + static_cast<std::ptrdiff_t>(measured_calls()));
  std::erase(known, 0);  // on another stream, and not ended yet on any rank
  if (known.empty()) {
    return -1;
  }
  const auto middle = known.begin() + static_cast<std::ptrdiff_t>(known.size() / 2);
  std::nth_element(known.begin(), middle, known.end());
  return *middle;
}

std::vector<Task> Course::tasks_for(std::span<const Task> tasks) {
  std::vector<Task> all(tasks.begin(), tasks.end());
  if (is_last()) {
    Task agreement;
    agreement.comm = tasks.front().comm;
    agreement.stream = tasks.front().stream;
    agreement.shape = {.collective = Collective::kAllReduce,
                       .type = static_cast<int>(DataType::kInt64),
                       .op = static_cast<int>(ReduceKind::kMax),
                       .count = measured_calls(),
                       .has_send = true,
                       .has_recv = true};
    agreement.op = ReduceOp::plain(ReduceKind::kMax);
    agreement.send = times_->sent.data();
    agreement.recv = times_->agreed.data();
    all.push_back(agreement);
  }
  return all;
}

void Course::note_call(Execution& execution) {
  const size_t slot = is_last()                            ? Watch::kAgrees
                      : made_ == 0 || made_ > kMeasuredMax ? Watch::kIgnores
                                                           : made_ - size_t{1};
  execution.watch = std::make_shared<Watch>(times_, slot, std::move(execution.watch));
  ++made_;
}

Result<Learning::Answer> Learning::find(std::span<const Task> tasks,
                                        const std::function<void()>& wait) {
  const auto is_collective = [](const Task& task) {
    return !is_point_to_point(task.shape.collective);
  };
  const auto call = std::find_if(tasks.begin(), tasks.end(), is_collective);
  if (!measures_ || context_.tuner == nullptr ||
      std::count_if(tasks.begin(), tasks.end(), is_collective) != 1) {
    return Answer{};
  }
  const ChoiceInput input = input_of(context_, tasks, *call);
  // An algorithm from a file may suit one of two sizes only.
  const uint64_t size = context_.recorded.empty()
                            ? static_cast<uint64_t>(std::bit_width(input.size_bytes))
                            : input.size_bytes;
  const Kind kind{input.collective, size, input.type, input.kind, input.root};
  const auto known = courses_.find(kind);
  if (known == courses_.end()) {
    return begin(kind, input);
  }
  if (!known->second.has_value()) {
    return Answer{};
  }
  Course& course = *known->second;
  if (course.is_over()) {
    wait();
    PLEXUS_TRY(course.ask(input, context_, ntrials_ + 1));
    ntrials_ += course.number_ == 0 ? 0 : 1;
  }
  return Answer{.made = course.made_choice(), .course = course.number_ == 0 ? nullptr : &course};
}

/// What the first answer decides, which all ranks ask for in the same call, holds for the kind:
/// they need not have the same plans in their caches later.
Result<Learning::Answer> Learning::begin(const Kind& kind, const ChoiceInput& input) {
  Course course;
  PLEXUS_TRY(course.ask(input, context_, ntrials_ + 1));
  const bool has_room = courses_.size() < kKindsMax;
  if (course.number_ == 0 || !has_room) {
    if (has_room) {
      courses_.emplace(kind, std::nullopt);
    }
    return Answer{.made = MadeChoice{course.lesson_.choice(), 0}};
  }
  ++ntrials_;
  Course& kept = *courses_.emplace(kind, std::move(course)).first->second;
  return Answer{.made = kept.made_choice(), .course = &kept};
}

}  // namespace plexus
