// SPDX-License-Identifier: Apache-2.0
// Collectives, send and receive, groups and user-defined reductions.
#include "core/api/arguments.hpp"
#include "core/api/guard.hpp"

namespace plexus {

namespace {

CallShape shape_of(const CallArguments& arguments) {
  return {.collective = arguments.collective,
          .type = arguments.type,
          .op = arguments.op,
          .root = arguments.root,
          .has_send = arguments.send != nullptr,
          .has_recv = arguments.recv != nullptr,
          .in_place = arguments.send == arguments.recv,
          .of_vector = arguments.of_vector,
          .count = arguments.count};
}

}  // namespace

Result<void> issue(const CallArguments& arguments) {
  const CallShape shape = shape_of(arguments);
  if (arguments.stream == nullptr && is_live(inner(arguments.comm))) {
    PLEXUS_TRY(repeated,
               repeat_call(*inner(arguments.comm), shape, arguments.send, arguments.recv));
    if (repeated) {
      return ok();
    }
  }
  auto task = check_call(arguments);
  if (task.has_error()) {
    fail_group(task.error());
    return std::move(task).error();
  }
  if (task.value().count == 0 && !is_point_to_point(arguments.collective)) {
    return ok();
  }
  return enqueue(task.value(), shape);
}

}  // namespace plexus

using plexus::Collective;
using plexus::guard;
using plexus::issue;
using plexus::kNoOp;

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
    return issue(
        {Collective::kAllReduce, sendbuff, recvbuff, count, datatype, op, 0, comm, stream});
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
    return issue(
        {Collective::kReduce, sendbuff, recvbuff, count, datatype, op, root, comm, stream});
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
        {Collective::kBroadcast, sendbuff, recvbuff, count, datatype, kNoOp, root, comm, stream});
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
    return issue({Collective::kBroadcast, buff, buff, count, datatype, kNoOp, root, comm, stream});
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
    return issue(
        {Collective::kAllGather, sendbuff, recvbuff, sendcount, datatype, kNoOp, 0, comm, stream});
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
        {Collective::kReduceScatter, sendbuff, recvbuff, recvcount, datatype, op, 0, comm, stream});
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
    return issue(
        {Collective::kAllToAll, sendbuff, recvbuff, count, datatype, kNoOp, 0, comm, stream});
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
        {Collective::kGather, sendbuff, recvbuff, count, datatype, kNoOp, root, comm, stream});
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
        {Collective::kScatter, sendbuff, recvbuff, count, datatype, kNoOp, root, comm, stream});
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
    return issue(
        {Collective::kSend, sendbuff, nullptr, count, datatype, kNoOp, peer, comm, stream});
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
    return issue(
        {Collective::kRecv, nullptr, recvbuff, count, datatype, kNoOp, peer, comm, stream});
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
    PLEXUS_TRY(plexus::check_ready(comm));
    PLEXUS_TRY(plexus::check_pointer(op, "op"));
    PLEXUS_TRY(plexus::check_pointer(scalar, "scalar"));
    PLEXUS_TRY(plexus::check_type(datatype));
    if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate) {
      return plexus::fail(plexus::Code::kInvalidArgument,
                          "residence {} is neither ncclScalarDevice nor "
                          "ncclScalarHostImmediate",
                          static_cast<int>(residence));
    }
    PLEXUS_TRY(made, plexus::create_premul_sum(*plexus::inner(comm),
                                               static_cast<plexus::DataType>(datatype), scalar,
                                               residence == ncclScalarDevice));
    *op = static_cast<ncclRedOp_t>(made);
    return plexus::ok();
  });
}

PLEXUS_PUBLIC(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) {
  return guard([&]() -> plexus::Result<void> {
    if (plexus::is_parents(comm)) {
      return plexus::ok();
    }
    PLEXUS_TRY(plexus::check_live(comm));
    return plexus::destroy_reduction(*plexus::inner(comm), op);
  });
}
// NOLINTEND(readability-function-size)
