// SPDX-License-Identifier: Apache-2.0
// ncclPutSignal, ncclSignal and ncclWaitSignal: checks, and the operations as core/comm runs them.
#include <utility>

#include <fmt/format.h>

#include "core/api/arguments.hpp"
#include "core/api/guard.hpp"
#include "core/comm/group.hpp"
#include "core/comm/one_sided_run.hpp"
#include "core/device/choose_device.hpp"
#include "core/device/virtual_devices.hpp"

namespace plexus {
namespace {

/// A signal as callers name it.
struct SignalPlace {
  int peer;
  int signal;
  int context;
};

Result<void> check_place(const Communicator& comm, const SignalPlace& place) {
  const OneSided& one_sided = *comm.one_sided();
  if (place.peer < 0 || place.peer >= comm.nranks()) {
    return fail(Code::kInvalidArgument, "peer {} is not a rank of this communicator (0..{})",
                place.peer, comm.nranks() - 1);
  }
  if (place.context < 0 || static_cast<uint32_t>(place.context) >= one_sided.contexts()) {
    return fail(Code::kInvalidArgument,
                "ctx is {}; this communicator has contexts 0..{} (ncclConfig_t.numRmaCtx)",
                place.context, one_sided.contexts() - 1);
  }
  if (place.signal < 0 || static_cast<uint32_t>(place.signal) >= one_sided.signals()) {
    return fail(Code::kInvalidArgument,
                "sigIdx is {}; a context has {} signals, from 0 (ncclConfig_t.numRmaSig)",
                place.signal, one_sided.signals());
  }
  return ok();
}

Result<void> check_flags(unsigned flags) {
  if (flags != 0) {
    return fail(Code::kInvalidArgument, "flags is {:#x}; no flag is defined", flags);
  }
  return ok();
}

/// The communicator has one-sided operations.
Result<Visit> enter_one_sided(ncclComm_t comm) {
  PLEXUS_TRY(visit, enter_ready(comm));
  if (visit->one_sided() == nullptr) {
    return fail(Code::kInvalidArgument, "{}",
                visit->device() != kHostDevice
                    ? "ranks on CUDA devices have no one-sided operations: use ncclSend and "
                      "ncclRecv in a group"
                    : "this communicator has no one-sided operations: its ncclConfig_t has "
                      "numRmaCtx 0");
  }
  return std::move(visit);
}

Result<void> check_signals(const Communicator& comm) {
  if (!comm.one_sided()->has_signals()) {
    return fail(Code::kInvalidUsage,
                "signals can be used once a window is registered: call ncclCommWindowRegister "
                "before, or set ncclConfig_t.rmaEagerInit to 1");
  }
  return ok();
}

/// Makes the operation, in the order of its stream.
Result<void> make(Visit visit, cudaStream_t stream, OneSidedCall call) {
  PLEXUS_TRY(found, check_stream(stream, visit->comm_config().virtual_device));
  if (found != nullptr && virtual_devices() != nullptr &&
      virtual_devices()->is_captured(reinterpret_cast<CUstream_st*>(found)) != 0) {
    return fail(Code::kInvalidUsage, "one-sided operations cannot be part of a graph");
  }
  return enqueue_one_sided({.comm = &*visit, .stream = found, .call = std::move(call)});
}

/// What ncclPutSignal puts.
struct PutArguments {
  const void* data;
  size_t count;
  ncclDataType_t type;
  ncclWindow_t window;
  size_t offset;
};

Result<void> put(ncclComm_t comm,
                 cudaStream_t stream,
                 const PutArguments& what,
                 const SignalPlace& place,
                 unsigned flags) {
  PLEXUS_TRY(visit, enter_one_sided(comm));
  PLEXUS_TRY(check_type(what.type));
  PLEXUS_TRY(check_place(*visit, place));
  PLEXUS_TRY(check_flags(flags));
  PLEXUS_TRY(check_pointer(what.window, "peerWin"));
  PLEXUS_TRY(number, visit->registrations().window_number(what.window));
  OneSidedCall call{.peer = place.peer,
                    .data = static_cast<const std::byte*>(what.data),
                    .window = number,
                    .offset = what.offset,
                    .context = static_cast<uint32_t>(place.context),
                    .signal = static_cast<uint32_t>(place.signal),
                    .waits = {}};
  if (__builtin_mul_overflow(what.count, element_size(static_cast<DataType>(what.type)),
                             &call.size_bytes)) {
    return fail(Code::kInvalidArgument, "count {} exceeds the address space", what.count);
  }
  PLEXUS_TRY(check_pointer(what.data, "localbuff"));
  if (!visit->registrations().has_symmetric(what.data, call.size_bytes)) {
    return fail(Code::kInvalidArgument,
                "localbuff {} with {} bytes is not inside a window of this communicator that was "
                "registered with NCCL_WIN_COLL_SYMMETRIC",
                fmt::ptr(what.data), call.size_bytes);
  }
  return make(std::move(visit), stream, std::move(call));
}

Result<void> wait(ncclComm_t comm,
                  cudaStream_t stream,
                  const ncclWaitSignalDesc_t* descriptors,
                  int count) {
  PLEXUS_TRY(visit, enter_one_sided(comm));
  PLEXUS_TRY(check_pointer(descriptors, "signalDescs"));
  if (count <= 0) {
    return fail(Code::kInvalidArgument, "nDesc is {}; there must be one description or more",
                count);
  }
  OneSidedCall call{.kind = OneSidedCall::Kind::kWait, .waits = {}};
  for (int i = 0; i < count; ++i) {
    const ncclWaitSignalDesc_t& each = descriptors[i];
    PLEXUS_TRY(check_place(*visit, {each.peer, each.sigIdx, each.ctx}));
    if (each.opCnt <= 0) {
      return fail(Code::kInvalidArgument, "signalDescs[{}].opCnt is {}; it must be 1 or more", i,
                  each.opCnt);
    }
    call.waits.push_back({static_cast<uint64_t>(each.opCnt), each.peer,
                          static_cast<uint32_t>(each.ctx), static_cast<uint32_t>(each.sigIdx)});
  }
  PLEXUS_TRY(check_signals(*visit));
  return make(std::move(visit), stream, std::move(call));
}

}  // namespace
}  // namespace plexus

// NOLINTBEGIN(readability-function-size): the numbers of parameters are NCCL's
PLEXUS_PUBLIC(ncclResult_t,
              ncclPutSignal,
              (const void* localbuff,
               size_t count,
               ncclDataType_t datatype,
               int peer,
               ncclWindow_t peerWin,
               size_t peerWinOffset,
               int sigIdx,
               int ctx,
               unsigned int flags,
               ncclComm_t comm,
               cudaStream_t stream)) {
  return plexus::guard_in_group([&] {
    return plexus::put(comm, stream, {localbuff, count, datatype, peerWin, peerWinOffset},
                       {peer, sigIdx, ctx}, flags);
  });
}

PLEXUS_PUBLIC(
    ncclResult_t,
    ncclSignal,
    (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream)) {
  return plexus::guard_in_group([&]() -> plexus::Result<void> {
    PLEXUS_TRY(visit, plexus::enter_one_sided(comm));
    PLEXUS_TRY(plexus::check_place(*visit, {peer, sigIdx, ctx}));
    PLEXUS_TRY(plexus::check_flags(flags));
    PLEXUS_TRY(plexus::check_signals(*visit));
    return plexus::make(std::move(visit), stream,
                        {.peer = peer,
                         .context = static_cast<uint32_t>(ctx),
                         .signal = static_cast<uint32_t>(sigIdx),
                         .waits = {}});
  });
}

PLEXUS_PUBLIC(
    ncclResult_t,
    ncclWaitSignal,
    (int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream)) {
  return plexus::guard_in_group([&] { return plexus::wait(comm, stream, signalDescs, nDesc); });
}
// NOLINTEND(readability-function-size)
