// SPDX-License-Identifier: Apache-2.0
#include "core/launch/call_runner.hpp"

#include <algorithm>
#include <utility>

#include "core/peers/reach.hpp"
#include "core/tuning/ask_tuner.hpp"
#include "guest/assert.hpp"

namespace plexus {

bool CallRunner::spans_devices(const LaunchContext& context) {
  const PeerInfo& mine = context.infos[static_cast<size_t>(context.plans.rank)];
  return std::any_of(context.infos.begin(), context.infos.end(), [&](const PeerInfo& info) {
    return share_process(info, mine) && info.device != mine.device && reach_each_other(mine, info);
  });
}

LastChoice CallRunner::last_choice() const noexcept {
  const Plan* const plan = newest_plan();
  if (plan == nullptr) {
    return {"", "", 0};
  }
  const Choice& choice = plan->choice();
  return {choice.algorithm->family, name(choice.protocol), choice.channels};
}

Result<Plan*> CallRunner::find_plan(std::span<const Task> tasks) {
  PLEXUS_TRY(follow_change());
  if (Plan* const found = plans_.find(tasks); found != nullptr) {
    return found;
  }
  if (is_released_) {
    return fail(Code::kInvalidUsage, "{}", kSuspended);
  }
  PLEXUS_TRY(answer, trial_runner_.find(tasks, [this] { wait_submitted(); }));
  if (answer.trial == nullptr) {
    return plans_.build(context_.plans, tasks, answer.made.has_value() ? &*answer.made : nullptr);
  }
  trial_ = answer.trial;
  const std::vector<Task> all = trial_->tasks_for(tasks);
  Plan* const found = plans_.find(all, answer.made->trial);
  return found != nullptr ? Result<Plan*>(found) : plans_.build(context_.plans, all, &*answer.made);
}

namespace {

/// The messages among `tasks` with other ranks.
MessageGroup messages_of(const PlanContext& context, std::span<const Task> tasks) {
  MessageGroup sent{.nranks = context.nranks, .slot_bytes = context.slot_bytes};
  MessageGroup received = sent;
  for (const Task& task : tasks) {
    const CallShape& call = task.shape;
    if (!is_point_to_point(call.collective) || call.root == context.rank) {
      continue;
    }
    MessageGroup& group = call.collective == Collective::kSend ? sent : received;
    const TransportKind transport = context.connections->transport_to(call.root);
    group.bytes += call.count * element_size(call.datatype());
    ++group.messages;
    group.over_net += transport == TransportKind::kNet ? 1 : 0;
    group.over_xdc += transport == TransportKind::kXdc ? 1 : 0;
  }
  MessageGroup& larger = received.bytes > sent.bytes || sent.messages == 0 ? received : sent;
  larger.both_ways = sent.messages > 0 && received.messages > 0;
  return larger;
}

}  // namespace

Result<std::optional<double>> CallRunner::estimate_us(std::span<const Task> tasks) {
  double sum_us = 0;
  if (const MessageGroup group = messages_of(context_.plans, tasks); group.messages > 0) {
    const auto messages_us =
        context_.plans.tuner == nullptr ? std::nullopt : ask_tuner(group, *context_.plans.tuner);
    if (!messages_us.has_value()) {
      return std::nullopt;
    }
    sum_us = *messages_us;
  }
  for (const Task& task : tasks) {
    if (is_point_to_point(task.shape.collective) || context_.plans.nranks == 1) {
      continue;
    }
    const ChoiceInput input = input_of(context_.plans, tasks, task);
    PLEXUS_TRY(decision, decide(input, *context_.plans.filter, context_.plans.tuner));
    const Candidate& chosen = decision.candidates[decision.chosen];
    if (chosen.predicted_us < 0) {
      return std::nullopt;
    }
    const auto work_us = is_rooted(input.collective) && context_.plans.tuner != nullptr
                             ? ask_tuner_for_work(chosen.choice, input, *context_.plans.tuner)
                             : std::nullopt;
    sum_us += work_us.value_or(chosen.predicted_us);
  }
  return sum_us;
}

void CallRunner::prepare(Plan& plan, std::span<const Task> tasks) {
  if (plan.is_trial()) {
    PLEXUS_DCHECK(trial_ != nullptr && !trial_->is_over());
    plan.execution().watch.reset();  // an earlier call may have left its own
    fill_in(plan, trial_->tasks_for(tasks));
    trial_->note_call(plan.execution());
  } else {
    fill_in(plan, tasks);
  }
}

void CallRunner::fill_in(Plan& plan, std::span<const Task> tasks) {
  const uint64_t sequence = context_.log->collectives();
  plan.tell(tasks);
  plan.prepare(tasks, *context_.log, places_);
  if (context_.profile != nullptr) {
    context_.profile->prepare(plan, tasks, sequence);
  }
}

Result<void> CallRunner::run_inline(std::span<const Task> tasks) {
  if (!is_idle()) {
    wait_submitted();
  }
  PLEXUS_TRY(plan, find_plan(tasks));
  prepare(*plan, tasks);
  return run(*plan);
}

Result<void> CallRunner::run(Plan& plan) {
  Execution* const execution = &plan.execution();
  PLEXUS_DCHECK(is_idle(), submitted_);
  engine_.run({&execution, 1});
  if (execution->error.has_value()) {
    take_back_calls(context_);
    return std::move(*execution->error);
  }
  return ok();
}

Result<void> CallRunner::make_change() {
  PLEXUS_TRY(changed, context_.change());
  if (changed) {
    plans_.forget();
    trial_runner_.forget();
    trial_ = nullptr;
  }
  return ok();
}

/// Not for reductions that users defined: ncclRedOpDestroy may have been called since, and the
/// multiplier is not part of the shape.
Result<bool> CallRunner::repeat(const CallShape& shape, const void* send, void* recv) {
  if (!repeats_ || shape.op >= kFirstUserOp || !is_idle()) {
    return false;
  }
  PLEXUS_TRY(follow_change());
  Plan* const plan = plans_.find(shape);
  if (plan == nullptr) {
    return false;
  }
  plan->prepare_again(send, recv, *context_.log, places_);
  PLEXUS_TRY(run(*plan));
  return true;
}

Result<bool> CallRunner::repeat_group(uint64_t plan_number, std::span<const Task> tasks) {
  PLEXUS_TRY(follow_change());
  Plan* const plan = plans_.newest();
  if (plan == nullptr || plan->number() != plan_number || plan->is_trial() || !is_idle()) {
    return false;
  }
  prepare(*plan, tasks);
  PLEXUS_TRY(run(*plan));
  return true;
}

/// Counts a submission as under way; the result, which the async engine's thread calls last, ends
/// it.
std::function<void()> CallRunner::finish_submission(std::function<void()> finished) {
  inside_.fetch_add(1, std::memory_order_relaxed);
  submitted_.fetch_add(1, std::memory_order_relaxed);
  return [this, finished = std::move(finished)] {
    finished();
    const int submitted = submitted_.fetch_sub(1, std::memory_order_release);
    PLEXUS_DCHECK(submitted > 0, submitted);
    submitted_.notify_all();
    const int inside = inside_.fetch_sub(1, std::memory_order_release);
    PLEXUS_DCHECK(inside > 0, inside);
  };
}

Submission::Part CallRunner::start_submission(Plan& plan) {
  PLEXUS_DCHECK(!plan.busy && plan.execution().finished, plan.busy);
  plan.busy = true;
  plan.execution().finished = false;
  plan.execution().is_submitted = true;
  return {.execution = &plan.execution(), .finished = finish_submission([&plan] {
                                            plan.execution().is_submitted = false;
                                            plan.busy = false;
                                          })};
}

Submission::Part CallRunner::start_submission(Execution& execution,
                                              std::function<void()> finished) {
  PLEXUS_DCHECK(execution.finished && execution.remote != nullptr);
  execution.finished = false;
  return {.execution = &execution, .finished = finish_submission(std::move(finished))};
}

void CallRunner::submit_run(Execution& execution, std::function<void()> finished) {
  context_.async->submit(
      {.parts = {start_submission(execution, std::move(finished))}, .streams = {}});
}

void CallRunner::wait_submitted() {
  for (int pending = submitted_.load(std::memory_order_acquire); pending != 0;
       pending = submitted_.load(std::memory_order_acquire)) {
    submitted_.wait(pending, std::memory_order_acquire);
  }
}

}  // namespace plexus
