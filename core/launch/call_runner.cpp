// SPDX-License-Identifier: Apache-2.0
#include "core/launch/call_runner.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace plexus {

Result<Plan*> CallRunner::find_plan(std::span<const Task> tasks) {
  PLEXUS_TRY(plan, plans_.find_or_build(context_.plans, tasks));
  for (std::shared_ptr<Plan>* const last : {&last_plan_, &last_group_plan_}) {
    if (*last == plan) {
      last->reset();  // has other scalars now
    }
  }
  newest_plan_ = std::move(plan);
  return newest_plan_.get();
}

void CallRunner::prepare(Plan& plan, std::span<const Task> tasks) {
  const uint64_t sequence = context_.log->collectives();
  plan.prepare(tasks, *context_.log, *context_.plans.memory);
  if (context_.profile != nullptr) {
    context_.profile->prepare(plan, tasks, sequence);
  }
  const Choice& choice = plan.choice();
  last_choice_ = {choice.algorithm->family, name(choice.protocol), choice.channels};
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
  engine_.run({&execution, 1});
  if (execution->error.has_value()) {
    return std::move(*execution->error);
  }
  return ok();
}

Result<void> CallRunner::repeat_last_call(const void* send, void* recv) {
  last_plan_->prepare_again(send, recv, *context_.log, *context_.plans.memory);
  return run(*last_plan_);
}

Result<void> CallRunner::repeat_last_group(std::span<const Task> tasks) {
  last_group_plan_->prepare(tasks, *context_.log, *context_.plans.memory);
  return run(*last_group_plan_);
}

/// Profilers want to see every call, a user's reduction may end, and a kernel needs a launch.
void CallRunner::note_last(std::span<const CallShape> shapes, uint64_t group) noexcept {
  constexpr int kBuiltInOps = 5;
  const bool repeats = context_.profile == nullptr && device() == nullptr &&
                       std::all_of(shapes.begin(), shapes.end(),
                                   [](const CallShape& shape) { return shape.op < kBuiltInOps; });
  if (group != 0) {
    last_group_plan_ = repeats ? newest_plan_ : nullptr;
    last_group_ = group;
  } else {
    last_plan_ = repeats && newest_plan_->is_one_call() ? newest_plan_ : nullptr;
    last_call_ = shapes.front();
  }
}

/// What the async engine's thread calls at the end of a submission, last of all.
std::function<void()> CallRunner::finish_submission(std::function<void()> finished) {
  inside_.fetch_add(1, std::memory_order_relaxed);
  submitted_.fetch_add(1, std::memory_order_relaxed);
  return [this, finished = std::move(finished)] {
    finished();
    submitted_.fetch_sub(1, std::memory_order_release);
    submitted_.notify_all();
    inside_.fetch_sub(1, std::memory_order_release);
  };
}

Submission::Part CallRunner::start_submission(Plan& plan) {
  plan.busy = true;
  plan.execution().finished = false;
  return {.execution = &plan.execution(),
          .finished = finish_submission([&plan] { plan.busy = false; })};
}

void CallRunner::submit_run(Execution& execution, std::function<void()> finished) {
  execution.finished = false;
  Submission::Part part{.execution = &execution,
                        .finished = finish_submission(std::move(finished))};
  context_.async->submit({.parts = {std::move(part)}, .streams = {}});
}

void CallRunner::wait_submitted() {
  for (int pending = submitted_.load(std::memory_order_acquire); pending != 0;
       pending = submitted_.load(std::memory_order_acquire)) {
    submitted_.wait(pending, std::memory_order_acquire);
  }
}

bool CallRunner::wait_submitted_for(std::chrono::milliseconds time) {
  const auto limit = std::chrono::steady_clock::now() + time;
  while (!is_idle()) {
    if (std::chrono::steady_clock::now() > limit) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void CallRunner::wait_left() {
  while (inside_.load(std::memory_order_acquire) != 0) {
    std::this_thread::yield();
  }
}

}  // namespace plexus
