// SPDX-License-Identifier: Apache-2.0
// Every check of what users pass, in one place and before any use. Order and codes follow NCCL; two
// things are stricter, because host memory would crash where a GPU reports: NULL buffers and sizes
// that overflow are refused.
#pragma once

#include "core/api/public.hpp"
#include "core/base/result.hpp"
#include "core/comm/visit.hpp"
#include "core/schedule/task.hpp"
#include "core/setup/comm_config.hpp"

namespace plexus {

struct CollConfig;

/// A call's addresses, communicator and stream as the public functions get them.
struct CallPlace {
  const void* send;
  void* recv;
  ncclComm_t comm;
  cudaStream_t stream;
};

/// Checks and makes the call. `shape` without has_send, has_recv and in_place, which follow from
/// `place`. A failure inside a group also fails the group, as in NCCL. By reference: a copy of what
/// was just stored in smaller pieces waits for the stores. `config`: settings of the call's own.
Result<void> issue(CallShape&& shape, const CallPlace& place, const CollConfig* config = nullptr);
/// The task of a call, checked. Its count may be 0.
Result<Task> check_call(const CallShape& shape, const CallPlace& place);

Result<void> check_pointer(const void* pointer, const char* what);
/// Fails if it is NULL, was destroyed, or is the parent's (fork).
Result<void> check_live(ncclComm_t comm);
/// True if a process that this one was forked from made it: ending it, or what belongs to it, does
/// nothing here.
bool is_parents(ncclComm_t comm) noexcept;
/// The stream of a rank on the host; nullptr: complete on return. On a virtual device (-1: none)
/// the default streams are streams as others are.
Result<HostStream*> check_stream(cudaStream_t stream, int virtual_device);
/// Why `stream` is none of ours.
Error unknown_stream(cudaStream_t stream);
/// As check_live; also fails if it cannot make calls now.
Result<void> check_ready(ncclComm_t comm);
/// What every function of a communicator begins with that is no collective: until the visit's end
/// ncclCommAbort, in another thread, does not end it. Errors of check_live.
Result<Visit> enter(ncclComm_t comm);
/// Errors of check_ready.
Result<Visit> enter_ready(ncclComm_t comm);
Result<void> check_type(ncclDataType_t type);
/// Checks nranks and rank of an init call.
Result<void> check_ranks(int nranks, int rank);
/// ncclConfig_t (NULL: defaults), with the environment's overrides.
Result<CommConfig> check_config(const ncclConfig_t* config);

}  // namespace plexus
