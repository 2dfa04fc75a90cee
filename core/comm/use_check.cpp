// SPDX-License-Identifier: Apache-2.0
#include "core/comm/use_check.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "core/comm/communicator.hpp"
#include "core/comm/process.hpp"
#include "core/os/caller.hpp"

namespace plexus {
namespace {

// When another thread comes to a communicator, it stays a little, so that threads that do not wait
// for each other meet.
constexpr auto kOverlapTime = std::chrono::microseconds(100);
constexpr auto kLockPatience = std::chrono::seconds(1);  // a thread that ended may hold the lock

std::string describe(Collective call, const void* caller) {
  return fmt::format("{} at {}", name(call), describe_caller(caller));
}

}  // namespace

Result<void> CallCheck::enter(const Communicator& comm, Collective call, const void* caller) {
  const auto self = std::this_thread::get_id();
  bool is_new_thread = false;
  {
    const std::lock_guard lock(mutex_);
    Claim& claim = claims_[&comm];
    if (claim.depth > 0 && claim.thread != self) {
      auto error = fail(
          Code::kInvalidUsage,
          "rank {} of {}: {} while another thread is in {}: one thread at a time uses "
          "a communicator",
          comm.rank(), comm.nranks(), describe(call, caller), describe(claim.call, claim.caller));
      report_.say(error.message());
      return error;
    }
    ++claim.depth;
    claim.thread = self;
    claim.call = call;
    claim.caller = caller;
    auto& last = last_callers_[&comm];
    is_new_thread = last != std::thread::id() && last != self;
    last = self;
  }
  if (is_new_thread) {
    std::this_thread::sleep_for(kOverlapTime);
  }
  return ok();
}

void CallCheck::release(const Communicator* comm) {
  if (const auto at = claims_.find(comm); at != claims_.end() && --at->second.depth == 0) {
    claims_.erase(at);
  }
}

void CallCheck::leave(const Communicator& comm) {
  const std::lock_guard lock(mutex_);
  release(&comm);
}

void CallCheck::add_to_group(const Task& task) {
  const std::lock_guard lock(mutex_);
  ++claims_[task.comm].depth;
  OpenGroup& group = groups_[std::this_thread::get_id()];
  group.comms.push_back(task.comm);
  if (group.calls++ == 0) {
    group.first_call = fmt::format("rank {} of {}: {}", task.comm->rank(), task.comm->nranks(),
                                   describe(task.shape.collective, task.caller));
  }
}

void CallCheck::end_group() {
  const std::lock_guard lock(mutex_);
  const auto at = groups_.find(std::this_thread::get_id());
  if (at != groups_.end()) {
    for (const Communicator* const comm : at->second.comms) {
      release(comm);
    }
    groups_.erase(at);
  }
}

void CallCheck::forget(const void* comm) {
  const std::lock_guard lock(mutex_);
  last_callers_.erase(comm);
}

void CallCheck::report_open_groups() {
  const std::unique_lock lock(mutex_, kLockPatience);
  if (!lock.owns_lock()) {
    return;
  }
  for (const auto& [thread, group] : groups_) {
    report_.say(
        fmt::format("{} is in a group of {} calls that was never ended: ncclGroupEnd is "
                    "missing, and none of them was made",
                    group.first_call, group.calls));
  }
}

UseCheck::UseCheck(Process& process) : buffers(report, process.memory), process_(process) {}

void UseCheck::note_end(const void* comm, const StreamOrder::Clock& mark) {
  buffers.end(mark);
  buffers.forget(comm);
  calls.forget(comm);
}

void UseCheck::report_at_end() {
  calls.report_open_groups();
  process_.communicators.any([this](const Communicator& comm) {
    if (comm.state() == Code::kSuccess) {
      report.say(
          fmt::format("rank {} of {}: the communicator that was made at {} was never destroyed",
                      comm.rank(), comm.nranks(), describe_caller(comm.comm_config().made_at)));
    }
    return false;
  });
}

}  // namespace plexus
