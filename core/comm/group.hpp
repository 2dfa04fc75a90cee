// SPDX-License-Identifier: Apache-2.0
// Groups: what a thread issues between ncclGroupStart and the outermost ncclGroupEnd, then done
// together; a call outside a group is one of its own. The depth and the queue are thread-local, as
// NCCL's API asks.
//
//   Group::start();
//   Group::current().add(send);
//   Group::current().add(recv);
//   PLEXUS_TRY(Group::end());  // runs both
//   return ok();
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/base/fork.hpp"
#include "core/base/result.hpp"
#include "core/comm/communicator.hpp"

namespace plexus {

class UseCheck;

/// Makes or ends a communicator at the end of a group, in a thread of its own: those of one group
/// wait for each other.
using LifecycleJob = std::function<Result<void>()>;

struct OneSidedTask;

class Group {
 public:
  /// The calling thread's.
  static Group& current() {
    return this_thread_.group != nullptr && this_thread_.forks == Forks::count()
               ? *this_thread_.group
               : make_current();
  }

  /// Is the calling thread between a start and the outermost end?
  [[nodiscard]] static bool open() noexcept {
    return this_thread_.depth > 0 && this_thread_.forks == Forks::count();
  }
  static void start() {
    current();
    ++this_thread_.depth;
  }
  static Result<void> end();
  /// Ends it without running its calls: the time that they would take, as far as the tuner knows;
  /// nullopt: it does not, or this is not the outermost end.
  static Result<std::optional<double>> simulate_end();
  void fail(const Error& error);
  /// If the thread's last group had a call of this shape at this place: takes it with other
  /// addresses, unchecked. False: it is another one, to be checked and added.
  bool repeat(const Communicator& comm,
              const CallShape& shape,
              const void* send,
              void* recv) noexcept;
  void add(const Task& task);
  void add(LifecycleJob job) { jobs_.push_back(std::move(job)); }
  void add(OneSidedTask task);

 private:
  Result<void> finish();
  Result<void> run_jobs();
  Result<std::optional<double>> estimate_us();
  static Group& make_current();
  // Access to thread-local objects with constructors is most of the cost of a group's calls: this
  // one has none and is found with one instruction.
  struct ThisThread {
    int depth = 0;
    Group* group = nullptr;
    uint64_t forks = 0;  // of the process that began it: a child's groups are new ones
  };
  // NOLINTNEXTLINE(*-avoid-non-const-global-variables,*-identifier-naming): private and
  // thread-local
  static thread_local constinit ThisThread this_thread_;
  // Tasks of this group; from index ntaken_ on those that the last group had there.
  std::vector<Task> tasks_;
  size_t ntaken_ = 0;
  /// The newest communicator when the last group began; 0: it is not to be repeated. What has a
  /// greater number is not of that group, even at the address of one that was.
  uint64_t newest_ = 0;
  /// Number of the last group's plan; 0: it had several, was on streams, or this is another group.
  uint64_t last_plan_ = 0;
  UseCheck* check_ = nullptr;  // of the communicators in the group; nullptr: none is checked
  std::vector<LifecycleJob> jobs_;
  std::vector<OneSidedTask> one_sided_;  // run after the tasks
  std::optional<Error> error_;
};

Result<void> group_start();
Result<void> group_end();
/// Marks the calling thread's open group as failed (a bad argument inside a group); no-op outside
/// one.
void fail_group(const Error& error);

/// Runs a checked call, or adds it to the calling thread's group.
Result<void> enqueue(const Task& task);
/// For loops of small messages: makes a call without checks, if an equal one has passed them:
/// outside groups any that `comm` has a plan for, complete on return; in a group the one at the
/// same place of the thread's last group. `comm` is live, and the call is on no stream. False: not
/// made, to be checked and enqueued.
Result<bool> repeat_call(Communicator& comm, const CallShape& shape, const void* send, void* recv);

}  // namespace plexus
