// SPDX-License-Identifier: Apache-2.0
// Every check of what users pass, in one place and before any use. Order and codes follow NCCL; two
// things are stricter, because host memory would crash where a GPU reports: NULL buffers and sizes
// that overflow are refused.
#pragma once

#include <span>

#include "core/api/public.hpp"
#include "core/base/result.hpp"
#include "core/comm/communicator_calls.hpp"

namespace plexus {

/// A collective or send/recv as the public functions get it.
struct CallArguments {
  Collective collective;
  const void* send;
  void* recv;
  size_t count;
  ncclDataType_t type;
  int op;    // -1: no reduction
  int root;  // 0 where there is none
  ncclComm_t comm;
  cudaStream_t stream;
  bool of_vector = false;  // see Task
};

inline constexpr int kNoOp = -1;

/// Checks and enqueues. A failure inside a group also fails the group, as in NCCL.
Result<void> issue(const CallArguments& arguments);
/// The task of a call, checked. Its count may be 0.
Result<Task> check_call(const CallArguments& arguments);

Result<void> check_pointer(const void* pointer, const char* what);
/// Not NULL and not ended.
Result<void> check_live(ncclComm_t comm);
/// Is it of the process that this one was forked from? To end it, or what is its, is nothing to do
/// here.
bool is_parents(ncclComm_t comm) noexcept;
/// None of ours: which of the reasons.
Error unknown_stream(cudaStream_t stream);
/// check_live, and ready for work.
Result<void> check_ready(ncclComm_t comm);
Result<void> check_type(ncclDataType_t type);
/// nranks and rank of an init call.
Result<void> check_ranks(int nranks, int rank);
/// ncclConfig_t (NULL: defaults), with the environment's overrides.
Result<CommConfig> check_config(const ncclConfig_t* config);

}  // namespace plexus
