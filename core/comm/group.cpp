// SPDX-License-Identifier: Apache-2.0
#include "core/comm/group.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>
#include <utility>

#include "core/base/memory.hpp"
#include "core/base/thread.hpp"
#include "core/comm/captured_calls.hpp"
#include "core/comm/in_call.hpp"
#include "core/comm/lifecycle.hpp"
#include "core/comm/one_sided_run.hpp"
#include "core/comm/process.hpp"
#include "core/launch/device_launch.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

/// The tasks of one communicator, in issue order.
struct CommTasks {
  Communicator* comm;
  std::vector<Task> tasks;
};

std::vector<CommTasks> sort_by_comm(std::span<const Task> tasks) {
  std::vector<CommTasks> sorted;
  for (const Task& task : tasks) {
    // Most groups issue all calls of one communicator in a row, so the search starts at the last.
    auto at = std::find_if(sorted.rbegin(), sorted.rend(),
                           [&](const CommTasks& entry) { return entry.comm == task.comm; });
    if (at == sorted.rend()) {
      sorted.push_back({task.comm, {}});
      at = sorted.rbegin();
    }
    at->tasks.push_back(task);
  }
  return sorted;
}

std::vector<HostStream*> streams_of(std::span<const Task> tasks) {
  std::vector<HostStream*> streams;
  for (const Task& task : tasks) {
    if (task.stream != nullptr &&
        std::find(streams.begin(), streams.end(), task.stream) == streams.end()) {
      streams.push_back(task.stream);
    }
  }
  return streams;
}

/// The plans of one group, by where they run.
struct GroupPlans {
  std::vector<std::pair<Communicator*, Plan*>> inline_plans;
  std::vector<std::pair<Communicator*, Plan*>> on_streams;
  std::vector<HostStream*> streams;  // of on_streams
  std::vector<std::pair<Communicator*, Plan*>>
      waits_for;  // of on_streams: some of their tasks are inline
  std::vector<DeviceCalls> on_devices;
};

/// All are planned before any starts, so that a group that cannot be planned leaves nothing behind.
Result<GroupPlans> plan_all(const std::vector<CommTasks>& sorted) {
  GroupPlans plans;
  for (const CommTasks& entry : sorted) {
    const auto streams = streams_of(entry.tasks);
    if (streams.empty() && entry.comm->device_rank() == nullptr) {
      entry.comm->wait_submitted();
    }
    PLEXUS_TRY(plan, entry.comm->runner().find_plan(entry.tasks));
    PLEXUS_DCHECK(plan == entry.comm->runner().newest_plan() && !plan->busy);  // as prepared below
    if (entry.comm->device_rank() != nullptr) {
      plans.on_devices.push_back(
          {.runner = &entry.comm->runner(), .plan = plan, .tasks = entry.tasks});
      continue;
    }
    if (streams.empty()) {
      plans.inline_plans.emplace_back(entry.comm, plan);
      continue;
    }
    plans.on_streams.emplace_back(entry.comm, plan);
    for (HostStream* const stream : streams) {
      if (std::find(plans.streams.begin(), plans.streams.end(), stream) == plans.streams.end()) {
        plans.streams.push_back(stream);
      }
    }
    if (std::any_of(entry.tasks.begin(), entry.tasks.end(),
                    [](const Task& task) { return task.stream == nullptr; })) {
      plans.waits_for.emplace_back(entry.comm, plan);
    }
  }
  for (const CommTasks& entry : sorted) {
    CallRunner& runner = entry.comm->runner();
    runner.prepare(*runner.newest_plan(), entry.tasks);
  }
  return plans;
}

/// PLEXUS_CHECK=1: what the calls do with buffers, before they begin.
void check_buffers(const std::vector<CommTasks>& sorted) {
  for (const CommTasks& entry : sorted) {
    if (entry.tasks.front().caller == nullptr || entry.comm->device_rank() != nullptr) {
      continue;
    }
    BufferCheck& check = entry.comm->process().check()->buffers;
    check.note_calls(entry.tasks);
    for (const Task& task : entry.tasks) {
      auto look = check.look_for_unwritten(task);
      if (task.stream == nullptr) {
        look();
      } else {
        entry.comm->process().launch_host_function(task.stream, std::move(look));
      }
    }
  }
}

/// Calls on streams are submitted together; those without a stream run together in this thread.
Result<void> run_sorted(const std::vector<CommTasks>& sorted) {
  PLEXUS_TRY(plans, plan_all(sorted));
  if (!plans.on_streams.empty()) {
    if (const auto* const devices = virtual_devices(); devices != nullptr) {
      for (HostStream* const stream : plans.streams) {
        devices->before_work(reinterpret_cast<CUstream_st*>(stream));
      }
    }
  }
  check_buffers(sorted);
  if (!plans.on_streams.empty()) {
    Submission submission{.parts = {}, .streams = std::move(plans.streams)};
    for (const auto& [comm, plan] : plans.on_streams) {
      submission.parts.push_back(comm->runner().start_submission(*plan));
    }
    sorted.front().comm->process().async.submit(std::move(submission));
  }
  std::vector<Execution*> executions;
  for (const auto& [comm, plan] : plans.inline_plans) {
    executions.push_back(&plan->execution());
  }
  if (!plans.on_devices.empty()) {
    PLEXUS_TRY(run_on_devices(plans.on_devices, executions));
  }
  if (!executions.empty()) {
    sorted.front().comm->runner().engine().run(executions);
  }
  for (const auto& [comm, plan] : plans.waits_for) {
    comm->wait_submitted();
    executions.push_back(&plan->execution());
  }
  const auto failed = std::find_if(executions.begin(), executions.end(),
                                   [](const Execution* each) { return each->error.has_value(); });
  if (failed == executions.end()) {
    return ok();
  }
  for (const CommTasks& entry : sorted) {
    take_back_calls(entry.comm->runner().context());
  }
  return std::move(*(*failed)->error);
}

/// True if all are calls of one host rank without a stream.
bool is_inline(std::span<const Task> tasks) {
  const Communicator* const comm = tasks.front().comm;
  return comm->device_rank() == nullptr &&
         std::all_of(tasks.begin(), tasks.end(),
                     [&](const Task& task) { return task.comm == comm && task.stream == nullptr; });
}

/// Tasks of any communicators: in order per communicator, communicators side by side.
Result<void> run_now(std::span<const Task> tasks) {
  PLEXUS_DCHECK(!tasks.empty());
  Communicator* const comm = tasks.front().comm;
  if (is_inline(tasks)) {  // without the lists that several communicators need
    const InCall inside(*comm);
    if (inside.is_stopped()) {
      return describe_stop(*comm);
    }
    if (tasks.front().caller != nullptr) {
      check_buffers(sort_by_comm(tasks));
    }
    return comm->runner().run_inline(tasks);
  }
  const auto sorted = sort_by_comm(tasks);
  std::deque<InCall> inside;
  for (const CommTasks& entry : sorted) {
    if (inside.emplace_back(*entry.comm).is_stopped()) {
      return describe_stop(*entry.comm);
    }
  }
  return run_sorted(sorted);
}

/// Calls on a stream whose work a graph takes down are made by the graph each time it is
/// launched.
Result<void> run_tasks(std::span<const Task> tasks) {
  const auto rest = take_down(tasks, run_now);
  if (!rest.has_value()) {
    return run_now(tasks);
  }
  return rest->empty() ? ok() : run_now(*rest);
}

}  // namespace

thread_local constinit Group::ThisThread Group::this_thread_;

/// In a child made by fork the thread has a group of its parent, whose communicators the child does
/// not have: it goes.
Group& Group::make_current() {
  thread_local Group group;
  group = Group();
  this_thread_ = {.depth = 0, .group = &group, .forks = Forks::count()};
  return group;
}

void Group::fail(const Error& error) {
  if (open()) {
    error_ = error.clone();
  }
}

Result<void> Group::end() {
  if (!open()) {
    return plexus::fail(Code::kInvalidUsage, "ncclGroupEnd without ncclGroupStart in this thread");
  }
  if (--this_thread_.depth > 0) {
    return ok();
  }
  Group& group = current();
  PLEXUS_DCHECK(this_thread_.depth == 0, this_thread_.depth);
  auto result = group.finish();
  if (result.has_error()) {
    group.newest_ = 0;
  }
  if (group.check_ != nullptr) {
    std::exchange(group.check_, nullptr)->calls.end_group();
  }
  group.ntaken_ = 0;
  group.jobs_.clear();
  group.one_sided_.clear();
  group.error_.reset();
  return result;
}

Result<std::optional<double>> Group::simulate_end() {
  if (!open()) {
    return plexus::fail(Code::kInvalidUsage,
                        "ncclGroupSimulateEnd without ncclGroupStart in this thread");
  }
  if (this_thread_.depth > 1) {
    --this_thread_.depth;
    return std::nullopt;
  }
  Group& group = current();
  group.tasks_.resize(group.ntaken_);
  auto estimated = group.estimate_us();
  // Ended as a group that has failed: none of its calls is made.
  group.error_ = plexus::fail(Code::kInvalidUsage, "the group was simulated");
  (void)end();
  return estimated;
}

/// Communicators run side by side.
Result<std::optional<double>> Group::estimate_us() {
  if (error_.has_value()) {
    return std::move(*error_);
  }
  if (!jobs_.empty()) {
    return plexus::fail(Code::kInvalidUsage,
                        "ncclGroupSimulateEnd: the group makes or ends communicators");
  }
  double longest_us = 0;
  for (const CommTasks& entry : sort_by_comm(tasks_)) {
    const InCall inside(*entry.comm);
    if (inside.is_stopped()) {
      return describe_stop(*entry.comm);
    }
    PLEXUS_TRY(estimated, entry.comm->runner().estimate_us(entry.tasks));
    if (!estimated.has_value()) {
      return std::nullopt;
    }
    longest_us = std::max(longest_us, *estimated);
  }
  return longest_us;
}

bool Group::repeat(const Communicator& comm,
                   const CallShape& shape,
                   const void* send,
                   void* recv) noexcept {
  PLEXUS_DCHECK(ntaken_ <= tasks_.size(), ntaken_, tasks_.size());
  if (ntaken_ == tasks_.size()) {
    return false;
  }
  Task& task = tasks_[ntaken_];
  const bool is_same = task.comm == &comm && comm.number() <= newest_ && task.shape == shape &&
                       shape.op < kFirstUserOp && task.stream == nullptr;
  // A CUDA rank's addresses are checked at each call (NCCL_CHECK_POINTERS).
  if (!is_same || comm.device_rank() != nullptr || !comm.can_repeat()) {
    return false;
  }
  // The other ranks look, too, whether their buffers are in windows.
  if (comm.registrations().has_symmetric_windows() && !is_point_to_point(shape.collective)) {
    return false;
  }
  task.send = send;
  task.recv = recv;
  ++ntaken_;
  return true;
}

void Group::add(const Task& task) {
  PLEXUS_DCHECK(open() && ntaken_ <= tasks_.size(), ntaken_, tasks_.size());
  tasks_.resize(ntaken_);  // what is left of the last group goes: this is another one
  tasks_.push_back(task);
  ++ntaken_;
  last_plan_ = 0;
  if (task.caller != nullptr) {
    check_ = task.comm->process().check();
    check_->calls.add_to_group(task);
  }
}

void Group::add(OneSidedTask task) { one_sided_.push_back(std::move(task)); }

Result<void> Group::finish() {
  PLEXUS_DCHECK(ntaken_ <= tasks_.size(), ntaken_, tasks_.size());
  const bool may_repeat = last_plan_ != 0 && ntaken_ > 0 && ntaken_ == tasks_.size() &&
                          jobs_.empty() && one_sided_.empty() && !error_.has_value();
  if (!may_repeat) {
    tasks_.resize(ntaken_);
    if (error_.has_value()) {
      return std::move(*error_);
    }
    if (!jobs_.empty()) {
      PLEXUS_TRY(run_jobs());
    }
    if (!one_sided_.empty()) {
      if (!tasks_.empty()) {
        PLEXUS_TRY(run_tasks(tasks_));
      }
      last_plan_ = 0;
      return run_one_sided(one_sided_);
    }
    if (tasks_.empty()) {
      return ok();
    }
  }
  Communicator& comm = *tasks_.front().comm;
  const InCall inside(comm);
  if (inside.is_stopped()) {
    return describe_stop(comm);
  }
  if (may_repeat) {
    PLEXUS_TRY(repeated, comm.runner().repeat_group(last_plan_, tasks_));
    if (repeated) {
      return ok();
    }
  }
  newest_ = comm.process().communicators.newest();
  last_plan_ = 0;
  PLEXUS_TRY(run_tasks(tasks_));
  if (is_inline(tasks_)) {
    last_plan_ = comm.runner().newest_plan()->number();
  }
  return ok();
}

/// Makes and ends communicators, each in a thread of its own. They wait for each other, so none
/// starts before all threads exist; if the system refuses one thread, none starts.
Result<void> Group::run_jobs() {
  if (jobs_.size() == 1) {
    return jobs_.front()();
  }
  enum class Gate { kShut, kOpen, kCancelled };
  std::atomic<Gate> gate{Gate::kShut};
  std::atomic<bool> lacks_memory{false};
  std::vector<std::optional<Error>> errors(jobs_.size());
  std::vector<std::thread> threads;
  threads.reserve(jobs_.size());
  std::optional<Error> refused;
  for (size_t i = 0; i < jobs_.size() && !refused.has_value(); ++i) {
    auto thread =
        start_thread("the communicators of a group", [this, i, &errors, &gate, &lacks_memory] {
          gate.wait(Gate::kShut, std::memory_order_acquire);
          if (gate.load(std::memory_order_acquire) == Gate::kCancelled) {
            return;
          }
          try {
            auto result = catch_lack_of_memory([&] { return jobs_[i](); });
            if (result.has_error()) {
              errors[i] = std::move(result).error();
            }
          } catch (const std::bad_alloc&) {  // no memory for the error
            lacks_memory.store(true, std::memory_order_relaxed);
          }
        });
    if (thread.has_error()) {
      refused = std::move(thread).error();
    } else {
      threads.push_back(std::move(thread).value());
    }
  }
  gate.store(refused.has_value() ? Gate::kCancelled : Gate::kOpen, std::memory_order_release);
  gate.notify_all();
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (refused.has_value()) {
    return std::move(*refused);
  }
  for (std::optional<Error>& error : errors) {
    if (error.has_value()) {
      return std::move(*error);
    }
  }
  if (lacks_memory.load(std::memory_order_relaxed)) {
    return describe_lack_of_memory();
  }
  return ok();
}

// ---- calls ----

Result<bool> repeat_call(Communicator& comm, const CallShape& shape, const void* send, void* recv) {
  if (Group::open()) {
    return Group::current().repeat(comm, shape, send, recv);
  }
  if (!comm.can_repeat()) {
    return false;
  }
  const InCall inside(comm);
  if (inside.is_stopped()) {
    return describe_stop(comm);
  }
  if (comm.registrations().has_symmetric_windows()) {
    CallShape here = shape;
    here.in_windows = comm.registrations().has_in_windows(shape, send, recv);
    return comm.runner().repeat(here, send, recv);
  }
  return comm.runner().repeat(shape, send, recv);
}

Result<void> group_start() {
  Group::start();
  return ok();
}

Result<void> group_end() { return Group::end(); }

void fail_group(const Error& error) { Group::current().fail(error); }

Result<void> enqueue(const Task& task) {
  if (Group::open()) {
    Group::current().add(task);
    return ok();
  }
  return run_tasks({&task, 1});
}

}  // namespace plexus
