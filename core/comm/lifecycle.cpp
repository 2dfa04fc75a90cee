// SPDX-License-Identifier: Apache-2.0
#include "core/comm/lifecycle.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include "core/base/clock.hpp"
#include "core/base/thread.hpp"
#include "core/comm/process.hpp"
#include "core/comm/start_communicator.hpp"
#include "core/comm/visit.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

/// Revoking is local. Ranks that have not revoked it, too, may wait for what this one did not do.
void tell_of_revocation(Communicator& comm) {
  if (comm.revoked.load(std::memory_order_relaxed)) {
    comm.setup().exchange->announce_failure(
        fail(Code::kRemoteError,
             "rank {} has revoked the communicator (ncclCommRevoke, or ncclCommShrink with "
             "NCCL_SHRINK_ABORT) and left it",
             comm.rank()));
  }
}

/// Frees a communicator whose plans are done or stopped, after waiting for what its peers still
/// read.
void release(Communicator* comm) {
  const Allowing all(comm->process().devices(), DriverCalls::kAll);
  if (comm->initializer.joinable()) {
    comm->initializer.join();
  }
  if (comm->finalizer.joinable()) {
    comm->finalizer.join();
  }
  comm->wait_submitted();
  comm->wait_left();
  comm->wait_unvisited();
  comm->settle();
  if (comm->setup().exchange != nullptr) {
    comm->setup().exchange->wait_dropped(&comm->stop);
  }
  tell_of_revocation(*comm);
  comm->announce_departure(Departure::kDestroyed);
  const std::unique_ptr<Communicator> owner(comm);
}

// For a thread of the communicator to leave its call. It may be inside a plugin's function that
// does not return, and kernels may wait behind other work on their streams; those end as soon as
// they start.
constexpr auto kPatience = std::chrono::milliseconds(800);
constexpr auto kDevicePatience = std::chrono::milliseconds(500);

template <class Condition>
bool comes_true(const Deadline& deadline, const Condition& condition) {
  while (!condition()) {
    if (deadline.expired()) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// Ends all waiting in `comm` and tells the other ranks.
void stop_aborted(Communicator* comm) {
  if (comm->initializer.joinable()) {
    comm->initializer.join();
  }
  const bool was_well = !comm->stop.load(std::memory_order_acquire);
  comm->stop_with(fail(Code::kInvalidUsage, "the communicator was aborted by ncclCommAbort"));
  if (comm->setup().exchange != nullptr) {
    if (was_well) {
      comm->setup().exchange->announce_failure(
          fail(Code::kRemoteError, "rank {} called ncclCommAbort", comm->rank()));
    }
    comm->setup().exchange->stop();
  }
}

/// Ends all waiting in those that share resources with `comm`, as they share NCCL's abort flag.
/// They stay, until the user ends them too.
void stop_sharers(Process& process, const Communicator& comm) {
  const auto sharers = Visit::begin_all(process, [&](const Communicator& other) {
    return &other != &comm && other.share_group() == comm.share_group();
  });
  for (const Visit& sharer : sharers) {
    sharer->give_up.store(true, std::memory_order_release);
    if (sharer->state() != Code::kSuccess) {
      continue;  // it has failed, or is being made and sees `give_up`
    }
    sharer->stop_with(fail(Code::kInvalidUsage,
                           "a communicator that shares resources with this one (splitShare) was "
                           "aborted by ncclCommAbort"));
    sharer->setup().exchange->announce_failure(
        fail(Code::kRemoteError,
             "rank {} called ncclCommAbort on a communicator that shares resources with this one",
             sharer->rank()));
  }
}

/// Runs `end` in a thread of its own, because it waits for what may take for ever.
void end_later(const std::function<void()>& end) {
  auto thread = start_thread("an aborted communicator", [end] {
    try {
      end();
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): what is left of it stays
    }
  });
  if (thread.has_error()) {
    end();
    return;
  }
  thread.value().detach();  // touches only what lives as long as the process
}

/// Ranks of one process read each other's buffers by address. Is another rank of this communicator
/// still in a call?
bool may_be_read(Process& process, const Communicator& comm) {
  return process.communicators.any([&](const Communicator& other) {
    return other.state() != Code::kInProgress && other.setup().group == comm.setup().group &&
           !other.is_left();
  });
}

/// A non-blocking communicator is in progress until its calls are done; an error stays its state.
Result<void> finalize_later(Communicator& comm) {
  comm.finalized.store(true, std::memory_order_relaxed);
  comm.try_change_state(Code::kSuccess, Code::kInProgress);
  auto thread = start_thread("the end of a non-blocking communicator", [&comm]() noexcept {
    comm.wait_submitted();
    comm.try_change_state(Code::kInProgress, Code::kSuccess);
  });
  if (thread.has_error()) {
    comm.try_change_state(Code::kInProgress, Code::kSuccess);
    comm.finalized.store(false, std::memory_order_relaxed);
    return std::move(thread).error();
  }
  PLEXUS_DCHECK(!comm.finalizer.joinable());
  comm.finalizer = std::move(thread).value();
  return fail(Code::kInProgress, "in progress");
}

bool is_revoked(const Communicator& comm) noexcept {
  return comm.revoked.load(std::memory_order_relaxed);
}

bool is_finalized(const Communicator& comm) noexcept {
  return comm.finalized.load(std::memory_order_relaxed);
}

/// Requires that `comm` is ready.
bool is_suspended(Communicator& comm) noexcept { return comm.runner().is_released(); }

}  // namespace

Code async_error(Communicator& comm) noexcept {
  comm.check_device();
  return comm.state();
}

Error describe_stop(Communicator& comm) {
  const auto visit = Visit::begin(comm.process(), &comm);
  return visit.has_value()
             ? comm.stop_reason()
             : fail(Code::kInvalidUsage,
                    "the communicator was aborted by ncclCommAbort in another thread");
}

Result<void> check_usable(Communicator& comm) noexcept {
  const Code state = comm.state();
  const bool goes_on = state == Code::kSuccess || comm.has_survived();
  if (goes_on && !is_revoked(comm) && !is_finalized(comm)) {
    return is_suspended(comm) ? Result<void>(fail(Code::kInvalidUsage, "{}", kSuspended)) : ok();
  }
  if (is_revoked(comm)) {
    return fail(Code::kInvalidUsage,
                "the communicator was revoked, by ncclCommRevoke or by ncclCommShrink with "
                "NCCL_SHRINK_ABORT: only split, shrink and destroy are possible");
  }
  if (state == Code::kInProgress) {
    return fail(Code::kInvalidArgument,
                "the communicator is not ready: poll ncclCommGetAsyncError until it is");
  }
  if (is_finalized(comm)) {
    return fail(Code::kInvalidUsage, "the communicator was finalized: only destroy is possible");
  }
  return describe_stop(comm);
}

Result<void> check_splittable(Communicator& comm) noexcept {
  return is_revoked(comm) ? Result<void>(ok()) : check_usable(comm);
}

Result<void> check_shrinkable(Communicator& comm) noexcept {
  const Code state = comm.state();
  const bool has_failed = state != Code::kSuccess && state != Code::kInProgress;
  const bool was_ready = comm.setup().exchange != nullptr;
  return is_revoked(comm) || (has_failed && was_ready && !is_finalized(comm)) ? Result<void>(ok())
                                                                              : check_usable(comm);
}

Result<void> finalize(Communicator& comm) {
  if (is_finalized(comm)) {
    return fail(Code::kInvalidArgument, "the communicator is already finalized");
  }
  if (is_revoked(comm)) {
    return fail(Code::kInvalidArgument, "a revoked communicator cannot be finalized: destroy it");
  }
  if (comm.state() == Code::kInProgress) {
    return fail(Code::kInvalidArgument,
                "the communicator is not ready: poll ncclCommGetAsyncError until it is");
  }
  if (!comm.comm_config().blocking && comm.is_busy()) {
    return finalize_later(comm);
  }
  comm.wait_submitted();
  comm.finalized.store(true, std::memory_order_relaxed);
  if (comm.stop.load(std::memory_order_acquire)) {
    return comm.stop_reason();
  }
  return ok();
}

Result<void> destroy(Process& process, Communicator* comm) {
  const bool is_in_progress = process.communicators.any([&](const Communicator& live) {
    return &live == comm && live.state() == Code::kInProgress && !live.comm_config().blocking;
  });
  if (is_in_progress) {
    return fail(Code::kInvalidArgument,
                "the communicator is not ready: poll ncclCommGetAsyncError until it is, or end it "
                "with ncclCommAbort");
  }
  if (!process.communicators.remove(comm)) {
    return fail(Code::kInvalidArgument, "the communicator was already destroyed or never created");
  }
  // If the group fails before this job ran, the communicator stays live and can be destroyed later.
  struct Leaving {
    explicit Leaving(Communicator* leaving) : comm(leaving) {}
    Leaving(const Leaving&) = delete;
    Leaving& operator=(const Leaving&) = delete;
    Communicator* comm;
    ~Leaving() {
      if (comm != nullptr) {
        comm->process().communicators.add(comm);
      }
    }
  };
  const auto leaving = std::make_shared<Leaving>(comm);  // std::function copies
  return run_lifecycle_job([leaving]() -> Result<void> {
    PLEXUS_DCHECK(leaving->comm != nullptr);  // a job runs once
    release(std::exchange(leaving->comm, nullptr));
    return ok();
  });
}

Result<void> abort(Process& process, Communicator* comm) {
  if (!process.communicators.remove(comm)) {
    return fail(Code::kInvalidArgument, "the communicator was already destroyed or never created");
  }
  comm->give_up.store(true, std::memory_order_release);
  stop_sharers(process, *comm);
  const auto deadline = Deadline::after(kPatience);
  const auto is_initialized = [&] { return comm->initialized.load(std::memory_order_acquire); };
  if (!comes_true(deadline, is_initialized)) {
    end_later([comm] {
      stop_aborted(comm);
      release(comm);
    });
    return ok();
  }
  stop_aborted(comm);
  // The others have been told of the failure, and this rank may free its buffers when it returns.
  constexpr auto kReadersPatience = std::chrono::milliseconds(500);
  (void)comes_true(Deadline::after(kReadersPatience),
                   [&] { return deadline.expired() || !may_be_read(process, *comm); });
  const bool is_on_device = comm->device_rank() != nullptr;
  if (comes_true(is_on_device ? Deadline::after(kDevicePatience) : deadline,
                 [&] { return comm->is_left() && !comm->is_visited(); })) {
    release(comm);
  } else {
    end_later([comm] { release(comm); });
  }
  return ok();
}

void wait_stopped(Communicator& comm) {
  (void)comes_true(Deadline::after(kPatience), [&] { return comm.is_left(); });
}

Result<void> revoke(Communicator& comm) {
  if (comm.state() == Code::kInProgress) {
    return fail(Code::kInvalidArgument,
                "the communicator is not ready: poll ncclCommGetAsyncError until it is");
  }
  if (is_finalized(comm) || comm.revoked.exchange(true, std::memory_order_relaxed)) {
    return fail(Code::kInvalidArgument, "the communicator was finalized or revoked before");
  }
  comm.give_up_survival();
  comm.stop_with(fail(Code::kInvalidUsage, "the communicator was revoked"));
  wait_stopped(comm);
  comm.set_state(Code::kSuccess);
  return ok();
}

}  // namespace plexus
