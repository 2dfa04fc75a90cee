// SPDX-License-Identifier: Apache-2.0
// Collectives, send and receive, groups and user-defined reductions.
#include <memory>
#include <optional>
#include <utility>

#include "core/api/arguments.hpp"
#include "core/api/coll_config.hpp"
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

/// What a call has besides its shape and place.
struct Extras {
  const CollConfig* config = nullptr;
  const void* caller = nullptr;  // the place in the program, where uses are checked
};

Result<void> issue_new(const CallShape& shape, const CallPlace& place, const Extras& extras) {
  Communicator* const comm = inner(place.comm);
  // From here on ncclCommAbort, in another thread, waits for this one before it destroys.
  std::optional<InCall> inside;
  if (Communicator::is_live(comm)) {
    inside.emplace(*comm);
  }
  auto task = inside.has_value() && inside->is_stopped() ? Result<Task>(explain_stop(*comm))
                                                         : check_call(shape, place);
  if (task.has_value()) {
    task.value().caller = extras.caller;
  }
  if (task.has_value() && extras.caller != nullptr && comm->device_rank() == nullptr) {
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
  if (extras.config != nullptr) {
    if (auto applied = apply_coll_config(*extras.config, task.value()); applied.has_error()) {
      fail_group(applied.error());
      return applied;
    }
  }
  return enqueue(task.value());
}

/// PLEXUS_CHECK=1.
Result<void> issue_checked(const CallShape& shape,
                           const CallPlace& place,
                           const CollConfig* config,
                           UseCheck& check) {
  Communicator& comm = *inner(place.comm);
  const void* const caller = find_caller();
  if (auto entered = check.calls.enter(comm, shape.collective, caller); entered.has_error()) {
    comm.fail(entered.error());
    fail_group(entered.error());
    return entered;
  }
  const auto leave = [&check, &comm](const void*) { check.calls.leave(comm); };
  const std::unique_ptr<const void, decltype(leave)> inside(&comm, leave);
  return issue_new(shape, place, {.config = config, .caller = caller});
}

}  // namespace

Result<void> issue(CallShape&& shape, const CallPlace& place, const CollConfig* config) {
  shape.has_send = place.send != nullptr;
  shape.has_recv = place.recv != nullptr;
  shape.in_place = place.send == place.recv;
  Communicator* const comm = inner(place.comm);
  if (!Communicator::is_live(comm)) {
    return issue_new(shape, place, {.config = config});
  }
  if (config == nullptr && place.stream == nullptr && comm->may_skip_checks()) {
    PLEXUS_TRY(repeated, repeat_call(*comm, shape, place.send, place.recv));
    if (repeated) {
      return ok();
    }
  }
  UseCheck* const check = comm->process().check();
  return check == nullptr ? issue_new(shape, place, {.config = config})
                          : issue_checked(shape, place, config, *check);
}

namespace {

/// The header of a configuration is checked before anything else; a bad one does not fail a group.
Result<void> issue_configured(CallShape&& shape,
                              const CallPlace& place,
                              const ncclCollConfig_t* config) {
  if (config == nullptr) {
    return issue(std::move(shape), place);
  }
  PLEXUS_TRY(checked, check_coll_config(*config));
  return issue(std::move(shape), place, &checked);
}

}  // namespace
}  // namespace plexus

using plexus::Collective;
using plexus::guard;
using plexus::issue;
using plexus::issue_configured;

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
              ncclAllReduceConfig,
              (const void* sendbuff,
               void* recvbuff,
               size_t count,
               ncclDataType_t datatype,
               ncclRedOp_t op,
               ncclComm_t comm,
               cudaStream_t stream,
               const ncclCollConfig_t* config)) {
  return guard([&] {
    return issue_configured(
        {.collective = Collective::kAllReduce, .type = datatype, .op = op, .count = count},
        {sendbuff, recvbuff, comm, stream}, config);
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
              ncclReduceConfig,
              (const void* sendbuff,
               void* recvbuff,
               size_t count,
               ncclDataType_t datatype,
               ncclRedOp_t op,
               int root,
               ncclComm_t comm,
               cudaStream_t stream,
               const ncclCollConfig_t* config)) {
  return guard([&] {
    return issue_configured({.collective = Collective::kReduce,
                             .type = datatype,
                             .op = op,
                             .root = root,
                             .count = count},
                            {sendbuff, recvbuff, comm, stream}, config);
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
              ncclBroadcastConfig,
              (const void* sendbuff,
               void* recvbuff,
               size_t count,
               ncclDataType_t datatype,
               int root,
               ncclComm_t comm,
               cudaStream_t stream,
               const ncclCollConfig_t* config)) {
  return guard([&] {
    return issue_configured(
        {.collective = Collective::kBroadcast, .type = datatype, .root = root, .count = count},
        {sendbuff, recvbuff, comm, stream}, config);
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
              ncclAllGatherConfig,
              (const void* sendbuff,
               void* recvbuff,
               size_t sendcount,
               ncclDataType_t datatype,
               ncclComm_t comm,
               cudaStream_t stream,
               const ncclCollConfig_t* config)) {
  return guard([&] {
    return issue_configured(
        {.collective = Collective::kAllGather, .type = datatype, .count = sendcount},
        {sendbuff, recvbuff, comm, stream}, config);
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
              ncclReduceScatterConfig,
              (const void* sendbuff,
               void* recvbuff,
               size_t recvcount,
               ncclDataType_t datatype,
               ncclRedOp_t op,
               ncclComm_t comm,
               cudaStream_t stream,
               const ncclCollConfig_t* config)) {
  return guard([&] {
    return issue_configured(
        {.collective = Collective::kReduceScatter, .type = datatype, .op = op, .count = recvcount},
        {sendbuff, recvbuff, comm, stream}, config);
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
              ncclAlltoAllConfig,
              (const void* sendbuff,
               void* recvbuff,
               size_t count,
               ncclDataType_t datatype,
               ncclComm_t comm,
               cudaStream_t stream,
               const ncclCollConfig_t* config)) {
  return guard([&] {
    return issue_configured({.collective = Collective::kAllToAll, .type = datatype, .count = count},
                            {sendbuff, recvbuff, comm, stream}, config);
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
              ncclGatherConfig,
              (const void* sendbuff,
               void* recvbuff,
               size_t count,
               ncclDataType_t datatype,
               int root,
               ncclComm_t comm,
               cudaStream_t stream,
               const ncclCollConfig_t* config)) {
  return guard([&] {
    return issue_configured(
        {.collective = Collective::kGather, .type = datatype, .root = root, .count = count},
        {sendbuff, recvbuff, comm, stream}, config);
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
              ncclScatterConfig,
              (const void* sendbuff,
               void* recvbuff,
               size_t count,
               ncclDataType_t datatype,
               int root,
               ncclComm_t comm,
               cudaStream_t stream,
               const ncclCollConfig_t* config)) {
  return guard([&] {
    return issue_configured(
        {.collective = Collective::kScatter, .type = datatype, .root = root, .count = count},
        {sendbuff, recvbuff, comm, stream}, config);
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

namespace plexus {
namespace {

Result<void> check_sim_info(const ncclSimInfo_t* info) {
  constexpr unsigned kMagic = 0x74685283;
  if (info != nullptr && (info->magic != kMagic || info->size < sizeof(ncclSimInfo_t))) {
    return fail(Code::kInvalidArgument,
                "ncclSimInfo_t is not initialised: start from NCCL_SIM_INFO_INITIALIZER");
  }
  return ok();
}

}  // namespace
}  // namespace plexus

PLEXUS_PUBLIC(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * simInfo)) {
  return guard([&]() -> plexus::Result<void> {
    auto checked = plexus::check_sim_info(simInfo);
    PLEXUS_TRY(estimated_us, plexus::Group::simulate_end());
    PLEXUS_TRY(std::move(checked));
    if (simInfo != nullptr) {
      simInfo->estimatedTime = static_cast<float>(estimated_us.value_or(NCCL_UNDEF_FLOAT));
    }
    return plexus::ok();
  });
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
