// SPDX-License-Identifier: Apache-2.0
// Collectives, send and receive, groups and user-defined reductions.
#include <memory>
#include <optional>
#include <utility>

#include "core/api/arguments.hpp"
#include "core/api/guard.hpp"
#include "core/comm/communicator.hpp"
#include "core/comm/group.hpp"
#include "core/comm/in_call.hpp"
#include "core/comm/lifecycle.hpp"
#include "core/comm/process.hpp"
#include "core/os/caller.hpp"

namespace plexus {
namespace {

Error explain_stop(Communicator& comm) {
  auto usable = check_usable(comm);
  return usable.has_error() ? std::move(usable).error() : describe_stop(comm);
}

/// `caller`: the place in the program, where uses are checked.
Result<void> issue_new(const CallShape& shape, const CallPlace& place, const void* caller) {
  Communicator* const comm = inner(place.comm);
  // From here on ncclCommAbort, in another thread, waits for this one before it destroys.
  std::optional<InCall> inside;
  if (Communicator::is_live(comm)) {
    inside.emplace(*comm);
  }
  auto task = inside.has_value() && inside->is_stopped() ? Result<Task>(explain_stop(*comm))
                                                         : check_call(shape, place);
  if (task.has_value()) {
    task.value().caller = caller;
  }
  if (task.has_value() && caller != nullptr && comm->device_rank() == nullptr) {
    if (auto checked = comm->process().check()->buffers.check_call(task.value());
        checked.has_error()) {
      comm->fail(checked.error());  // the other ranks would wait for this one
      task = std::move(checked).error();
    }
  }
  if (task.has_error()) {
    fail_group(task.error());
    return std::move(task).error();
  }
  if (shape.count == 0 && !is_point_to_point(shape.collective)) {
    return ok();
  }
  return enqueue(task.value());
}

/// PLEXUS_CHECK=1.
Result<void> issue_checked(const CallShape& shape, const CallPlace& place, UseCheck& check) {
  Communicator& comm = *inner(place.comm);
  const void* const caller = find_caller();
  if (auto entered = check.calls.enter(comm, shape.collective, caller); entered.has_error()) {
    comm.fail(entered.error());
    fail_group(entered.error());
    return entered;
  }
  const auto leave = [&check, &comm](const void*) { check.calls.leave(comm); };
  const std::unique_ptr<const void, decltype(leave)> inside(&comm, leave);
  return issue_new(shape, place, caller);
}

}  // namespace

Result<void> issue(CallShape&& shape, const CallPlace& place) {
  shape.has_send = place.send != nullptr;
  shape.has_recv = place.recv != nullptr;
  shape.in_place = place.send == place.recv;
  Communicator* const comm = inner(place.comm);
  if (!Communicator::is_live(comm)) {
    return issue_new(shape, place, nullptr);
  }
  if (place.stream == nullptr && comm->may_skip_checks()) {
    PLEXUS_TRY(repeated, repeat_call(*comm, shape, place.send, place.recv));
    if (repeated) {
      return ok();
    }
  }
  UseCheck* const check = comm->process().check();
  return check == nullptr ? issue_new(shape, place, nullptr) : issue_checked(shape, place, *check);
}

}  // namespace plexus

using plexus::Collective;
using plexus::guard;
using plexus::issue;

// NOLINTBEGIN(readability-function-size): the numbers of parameters are NCCL's
PLEXUS_PUBLIC(ncclResult_t,
              ncclAllReduce,
              (const void* sendbuff,
               void* recvbuff,
               size_t count,
               ncclDataType_t datatype,
               ncclRedOp_t op,
               ncclComm_t comm,
               cudaStream_t stream)) {
  return guard([&] {
    return issue({.collective = Collective::kAllReduce, .type = datatype, .op = op, .count = count},
                 {sendbuff, recvbuff, comm, stream});
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclReduce,
              (const void* sendbuff,
               void* recvbuff,
               size_t count,
               ncclDataType_t datatype,
               ncclRedOp_t op,
               int root,
               ncclComm_t comm,
               cudaStream_t stream)) {
  return guard([&] {
    return issue({.collective = Collective::kReduce,
                  .type = datatype,
                  .op = op,
                  .root = root,
                  .count = count},
                 {sendbuff, recvbuff, comm, stream});
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclBroadcast,
              (const void* sendbuff,
               void* recvbuff,
               size_t count,
               ncclDataType_t datatype,
               int root,
               ncclComm_t comm,
               cudaStream_t stream)) {
  return guard([&] {
    return issue(
        {.collective = Collective::kBroadcast, .type = datatype, .root = root, .count = count},
        {sendbuff, recvbuff, comm, stream});
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclBcast,
              (void* buff,
               size_t count,
               ncclDataType_t datatype,
               int root,
               ncclComm_t comm,
               cudaStream_t stream)) {
  return guard([&] {
    return issue(
        {.collective = Collective::kBroadcast, .type = datatype, .root = root, .count = count},
        {buff, buff, comm, stream});
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclAllGather,
              (const void* sendbuff,
               void* recvbuff,
               size_t sendcount,
               ncclDataType_t datatype,
               ncclComm_t comm,
               cudaStream_t stream)) {
  return guard([&] {
    return issue({.collective = Collective::kAllGather, .type = datatype, .count = sendcount},
                 {sendbuff, recvbuff, comm, stream});
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclReduceScatter,
              (const void* sendbuff,
               void* recvbuff,
               size_t recvcount,
               ncclDataType_t datatype,
               ncclRedOp_t op,
               ncclComm_t comm,
               cudaStream_t stream)) {
  return guard([&] {
    return issue(
        {.collective = Collective::kReduceScatter, .type = datatype, .op = op, .count = recvcount},
        {sendbuff, recvbuff, comm, stream});
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclAlltoAll,
              (const void* sendbuff,
               void* recvbuff,
               size_t count,
               ncclDataType_t datatype,
               ncclComm_t comm,
               cudaStream_t stream)) {
  return guard([&] {
    return issue({.collective = Collective::kAllToAll, .type = datatype, .count = count},
                 {sendbuff, recvbuff, comm, stream});
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclGather,
              (const void* sendbuff,
               void* recvbuff,
               size_t count,
               ncclDataType_t datatype,
               int root,
               ncclComm_t comm,
               cudaStream_t stream)) {
  return guard([&] {
    return issue(
        {.collective = Collective::kGather, .type = datatype, .root = root, .count = count},
        {sendbuff, recvbuff, comm, stream});
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclScatter,
              (const void* sendbuff,
               void* recvbuff,
               size_t count,
               ncclDataType_t datatype,
               int root,
               ncclComm_t comm,
               cudaStream_t stream)) {
  return guard([&] {
    return issue(
        {.collective = Collective::kScatter, .type = datatype, .root = root, .count = count},
        {sendbuff, recvbuff, comm, stream});
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclSend,
              (const void* sendbuff,
               size_t count,
               ncclDataType_t datatype,
               int peer,
               ncclComm_t comm,
               cudaStream_t stream)) {
  return guard([&] {
    return issue({.collective = Collective::kSend, .type = datatype, .root = peer, .count = count},
                 {sendbuff, nullptr, comm, stream});
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclRecv,
              (void* recvbuff,
               size_t count,
               ncclDataType_t datatype,
               int peer,
               ncclComm_t comm,
               cudaStream_t stream)) {
  return guard([&] {
    return issue({.collective = Collective::kRecv, .type = datatype, .root = peer, .count = count},
                 {nullptr, recvbuff, comm, stream});
  });
}

PLEXUS_PUBLIC(ncclResult_t, ncclGroupStart, (void)) {
  return guard([] { return plexus::group_start(); });
}

PLEXUS_PUBLIC(ncclResult_t, ncclGroupEnd, (void)) {
  return guard([] { return plexus::group_end(); });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclRedOpCreatePreMulSum,
              (ncclRedOp_t * op,
               void* scalar,
               ncclDataType_t datatype,
               ncclScalarResidence_t residence,
               ncclComm_t comm)) {
  return guard([&]() -> plexus::Result<void> {
    PLEXUS_TRY(visit, plexus::enter_ready(comm));
    PLEXUS_TRY(plexus::check_pointer(op, "op"));
    PLEXUS_TRY(plexus::check_pointer(scalar, "scalar"));
    PLEXUS_TRY(plexus::check_type(datatype));
    if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate) {
      return plexus::fail(plexus::Code::kInvalidArgument,
                          "residence {} is neither ncclScalarDevice nor "
                          "ncclScalarHostImmediate",
                          static_cast<int>(residence));
    }
    *op = static_cast<ncclRedOp_t>(visit->user_reductions().add(
        static_cast<plexus::DataType>(datatype), scalar, residence == ncclScalarDevice));
    return plexus::ok();
  });
}

PLEXUS_PUBLIC(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) {
  return guard([&]() -> plexus::Result<void> {
    if (plexus::is_parents(comm)) {
      return plexus::ok();
    }
    PLEXUS_TRY(visit, plexus::enter(comm));
    return visit->user_reductions().remove(op);
  });
}
// NOLINTEND(readability-function-size)
