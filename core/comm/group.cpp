// SPDX-License-Identifier: Apache-2.0
#include "core/comm/group.hpp"

#include <algorithm>
#include <thread>

#include "core/comm/communicator_calls.hpp"

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
    // Groups name communicators in turn: the last one or the next one is the usual case.
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

/// Marks the communicators as in use by this thread, for abort.
class Inside {
 public:
  explicit Inside(const std::vector<CommTasks>& sorted) : sorted_(sorted) {
    for (const CommTasks& entry : sorted_) {
      entry.comm->enter();
    }
  }
  ~Inside() {
    for (const CommTasks& entry : sorted_) {
      entry.comm->leave();
    }
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  const std::vector<CommTasks>& sorted_;
};

/// Plans for the inline communicators, executed together; the others go on their streams.
Result<void> run_sorted(const std::vector<CommTasks>& sorted) {
  std::vector<Execution*> executions;
  std::vector<Communicator*> waits_for;
  for (const CommTasks& entry : sorted) {
    auto streams = streams_of(entry.tasks);
    if (streams.empty()) {
      entry.comm->wait_submitted();
    }
    PLEXUS_TRY(plan, entry.comm->plan(entry.tasks));
    if (streams.empty()) {
      executions.push_back(&plan->execution());
      continue;
    }
    const bool some_inline = std::any_of(entry.tasks.begin(), entry.tasks.end(),
                                         [](const Task& task) { return task.stream == nullptr; });
    if (some_inline) {
      waits_for.push_back(entry.comm);
    }
    entry.comm->submit(*plan, std::move(streams));
  }
  if (!executions.empty()) {
    sorted.front().comm->engine().run(executions);
  }
  for (Communicator* const comm : waits_for) {
    comm->wait_submitted();
  }
  for (Execution* const execution : executions) {
    if (execution->error.has_value()) {
      return std::move(*execution->error);
    }
  }
  return ok();
}

}  // namespace

Group& Group::current() {
  thread_local Group group;
  return group;
}

thread_local int Group::depth_ = 0;

void Group::fail(const Error& error) {
  if (open()) {
    error_ = error.clone();
  }
}

Result<void> Group::end() {
  if (depth_ == 0) {
    return plexus::fail(Code::kInvalidUsage, "ncclGroupEnd without ncclGroupStart in this thread");
  }
  if (--depth_ > 0) {
    return ok();
  }
  auto result = finish();
  tasks_.clear();
  jobs_.clear();
  error_.reset();
  return result;
}

Result<void> Group::finish() {
  if (error_.has_value()) {
    return std::move(*error_);
  }
  if (jobs_.size() == 1) {
    PLEXUS_TRY(jobs_.front()());
  } else if (!jobs_.empty()) {
    std::vector<std::optional<Error>> errors(jobs_.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      threads.emplace_back([this, i, &errors] {
        auto result = jobs_[i]();
        if (result.has_error()) {
          errors[i] = std::move(result).error();
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (std::optional<Error>& error : errors) {
      if (error.has_value()) {
        return std::move(*error);
      }
    }
  }
  return tasks_.empty() ? ok() : run_tasks(tasks_);
}

Result<void> run_tasks(std::span<const Task> tasks) {
  Communicator* const comm = tasks.front().comm;
  const bool is_simple = std::all_of(tasks.begin(), tasks.end(), [&](const Task& task) {
    return task.comm == comm && task.stream == nullptr;
  });
  if (is_simple) {  // without the lists that several communicators need
    comm->enter();
    auto result = comm->run_inline(tasks);
    comm->leave();
    return result;
  }
  const auto sorted = sort_by_comm(tasks);
  const Inside inside(sorted);
  return run_sorted(sorted);
}

// ---- the calls of communicator_calls.hpp ----

Result<bool> repeat_call(Communicator& comm, const CallShape& shape, const void* send, void* recv) {
  if (Group::open() || !comm.is_last_call(shape)) {
    return false;
  }
  comm.enter();
  auto result = comm.repeat_last_call(send, recv);
  comm.leave();
  PLEXUS_TRY(std::move(result));
  return true;
}

void note_call(Communicator& comm, const CallShape& shape) noexcept {
  if (!Group::open()) {
    comm.note_last_call(shape);
  }
}

Result<void> group_start() noexcept {
  Group::current().start();
  return ok();
}

Result<void> group_end() { return Group::current().end(); }

void fail_group(const Error& error) { Group::current().fail(error); }

Result<void> enqueue(const Task& task) {
  if (Group::open()) {
    Group::current().add(task);
    return ok();
  }
  return run_tasks({&task, 1});
}

}  // namespace plexus
