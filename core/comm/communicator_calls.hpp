// SPDX-License-Identifier: Apache-2.0
// What `core/api` calls: the life of communicators, groups and user memory, after argument checks.
// A call on a non-blocking communicator that is not finished returns an Error of code kInProgress.
// Threads: as NCCL's API; abort() and async_error() from any thread at any time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/base/result.hpp"
#include "core/bootstrap/unique_id.hpp"
#include "core/device/host_stream.hpp"
#include "core/schedule/task.hpp"
#include "core/setup/comm_config.hpp"

namespace plexus {

/// Is `comm` a communicator that was created and not destroyed? (One comparison of a magic number.)
bool is_live(const Communicator* comm) noexcept;

// -- fork: what a parent made stays its own. In the child nothing of it is touched: giving it back
// -- is done at once, all else is refused --
/// The process that made `comm`, and from which this one was forked; 0: not so.
int32_t parent_of(const Communicator* comm) noexcept;
/// The child knows it no more.
void forget(Communicator* comm) noexcept;
/// Likewise for a stream; there is nothing to forget.
int32_t parent_of_stream(const void* handle) noexcept;
/// What a call gets that needs more than to give it back: "the communicator was made by process 7".
Error made_before_fork(const char* what, int32_t pid);

/// Plain facts. Valid once the communicator is ready.
int rank_of(const Communicator& comm) noexcept;
int nranks_of(const Communicator& comm) noexcept;
int device_of(const Communicator& comm) noexcept;  // CUDA device number; -1 on host ranks

/// kSuccess: ready. kInProgress: init, split or finalize under way. Else: the sticky error.
Code async_error(Communicator& comm) noexcept;
/// One sentence for the sticky error (empty when none): logged once as WARN by the API.
/// Usable = ready: an Error when init is in progress (kInvalidArgument), revoked (kInvalidUsage) or
/// failed.
Result<void> check_usable(const Communicator& comm) noexcept;

/// Can it have children? As check_usable, but a revoked one can.
Result<void> check_splittable(const Communicator& comm) noexcept;

// -- life --
Result<void> init_rank(Communicator** comm,
                       int nranks,
                       std::span<const UniqueId> ids,
                       int rank,
                       const CommConfig& config);
Result<void> init_all(Communicator** comms, int ndevices, const int* devices);
/// `config` nullptr: the parent's. `color` -1: takes part, `*child` = nullptr.
Result<void> split(
    Communicator& parent, int color, int key, Communicator** child, const CommConfig* config);
/// `excluded`: sorted, unique parent ranks, not the caller's. `abort_parent`: NCCL_SHRINK_ABORT.
Result<void> shrink(Communicator& parent,
                    std::span<const int> excluded,
                    Communicator** child,
                    const CommConfig* config,
                    bool abort_parent);
Result<void> finalize(Communicator& comm);
Result<void> destroy(Communicator* comm);
Result<void> abort(Communicator* comm);
Result<void> revoke(Communicator& comm);

/// With NCCL_CHECK_POINTERS, of a CUDA rank: kInvalidArgument when its device does not reach
/// `buffer`.
Result<void> check_reach(const Communicator& comm, const void* buffer, const char* what);

// -- groups and work (`Task::comm` set, arguments checked) --
Result<void> group_start();
Result<void> group_end();
/// Marks the calling thread's open group as failed (a bad argument inside a group); no-op outside
/// one.
void fail_group(const Error& error);

/// `shape`: of the call that `task` was made from.
Result<void> enqueue(const Task& task, const CallShape& shape);
/// What loops of small messages do: the call that `comm` did last, or the one that stood at this
/// place in the thread's last group, complete on return, once more with other addresses. False: it
/// is another one, to be checked and enqueued.
Result<bool> repeat_call(Communicator& comm, const CallShape& shape, const void* send, void* recv);

// -- user-defined reductions: PreMulSum --
/// Returns an ncclRedOp_t value (>= 5, < 0x7fffffff), scrambled per communicator.
Result<int> create_premul_sum(Communicator& comm,
                              DataType type,
                              const void* scalar,
                              bool scalar_on_device);
Result<void> destroy_reduction(Communicator& comm, int op);
/// Resolves a public ncclRedOp_t (builtin 0..4 or custom) for `type` in `comm` into task.op /
/// task.scalar.
Result<void> resolve_reduction(Communicator& comm, int op, DataType type, Task* task);

// -- memory (ncclMemAlloc: on the current device; on the host page-aligned, and shareable with the
// -- other processes) --
Result<void*> allocate_memory(size_t size_bytes);
Result<void> free_memory(void* pointer);
Result<void*> register_buffer(Communicator& comm,
                              void* buffer,
                              size_t size_bytes);  // may be nullptr
Result<void> deregister_buffer(Communicator& comm, void* handle);
/// Windows (ncclCommWindowRegister): collective in NCCL; here a window is a record of (buffer,
/// size).
Result<void*> register_window(Communicator& comm, void* buffer, size_t size_bytes, int flags);
Result<void> deregister_window(Communicator& comm, void* window);
Result<void*> window_user_pointer(Communicator& comm, void* window);

// -- host streams (plexus.h) --
Result<HostStream*> create_host_stream();
Result<void> destroy_host_stream(HostStream* stream);
/// Blocks until all work put on `stream` so far is done; returns its first error.
Result<void> wait_host_stream(HostStream* stream);
/// true: all done. An Error: the first failure on the stream.
Result<bool> query_host_stream(HostStream* stream);
/// The live host stream behind a cudaStream_t value, nullptr when it is none of ours.
HostStream* find_host_stream(const void* handle) noexcept;
/// Work put on `stream` from now on starts when `event`'s last mark is reached.
Result<void> wait_for_event(HostStream* stream, const HostEvent& event);
/// `function` runs in the engine's thread, in the order of the stream.
Result<void> launch_host_function(HostStream* stream, std::function<void()> function);

// -- host events (plexus.h) --
Result<HostEvent*> create_host_event();
Result<void> destroy_host_event(const void* handle);
/// kInvalidArgument when it is none of ours.
Result<std::shared_ptr<HostEvent>> find_host_event(const void* handle);

LastChoice last_choice(const Communicator& comm) noexcept;

}  // namespace plexus
