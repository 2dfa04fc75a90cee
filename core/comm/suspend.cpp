// SPDX-License-Identifier: Apache-2.0
#include "core/comm/suspend.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "core/base/text.hpp"
#include "core/comm/lifecycle.hpp"
#include "core/comm/one_sided.hpp"
#include "core/comm/process.hpp"
#include "core/comm/start_communicator.hpp"
#include "core/comm/visit.hpp"
#include "core/transport/connections.hpp"

namespace plexus {
namespace {

ConnectionSet& connections_of(Communicator& comm) {
  return *comm.runner().context().plans.connections;
}

/// Why this rank cannot suspend, for all of them; empty: it can.
std::string find_obstacle(Communicator& comm) {
  if (comm.device_rank() != nullptr) {
    return "computes on a GPU, whose kernels keep their memory";
  }
  if (!comm.runner().release()) {
    return "has calls in a graph";
  }
  return "";
}

/// All ranks have ended their calls when this does. What they have sent and not received would be
/// lost with the slots.
Result<void> await_all(Communicator& comm) {
  std::string bytes(sizeof(int64_t), '\0');
  const int64_t mine = comm.runner().context().log->unpaired();
  std::memcpy(bytes.data(), &mine, sizeof(mine));
  PLEXUS_TRY(counts, comm.setup().exchange->all_gather(std::move(bytes), &comm.give_up));
  int64_t unpaired = 0;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    int64_t theirs = 0;
    if (counts[rank].size() != sizeof(theirs)) {
      return fail(Code::kInvalidUsage, "rank {} is not in the same ncclCommSuspend call as rank {}",
                  rank, comm.rank());
    }
    std::memcpy(&theirs, counts[rank].data(), sizeof(theirs));
    unpaired += theirs;
  }
  if (unpaired != 0) {
    return fail(Code::kInvalidUsage,
                "ncclCommSuspend: {} that the ranks have sent to each other {} not received yet: "
                "every ncclSend needs its ncclRecv before",
                counted(static_cast<size_t>(unpaired), "message"), unpaired == 1 ? "is" : "are");
  }
  return ok();
}

/// The second gather tells whether all can.
Result<void> suspend_now(Communicator& comm) {
  comm.wait_submitted();
  comm.wait_left();
  PLEXUS_TRY(await_all(comm));
  comm.settle();
  auto gathered = comm.setup().exchange->all_gather(find_obstacle(comm), &comm.give_up);
  if (gathered.has_error()) {
    comm.runner().restore();
    return std::move(gathered).error();
  }
  const Gathered& obstacles = gathered.value();
  for (size_t rank = 0; rank < obstacles.size(); ++rank) {
    if (!obstacles[rank].empty()) {
      comm.runner().restore();
      return fail(Code::kInvalidUsage, "ncclCommSuspend: rank {} {}", rank,
                  std::string(obstacles[rank]));
    }
  }
  comm.unsettled.clear();  // before the ends that it names
  connections_of(comm).close();
  return ok();
}

}  // namespace

Result<void> suspend(Communicator& comm) {
  PLEXUS_TRY(check_usable(comm));
  const bool is_shared = comm.comm_config().share_group != 0 ||
                         comm.process().communicators.any([&comm](const Communicator& other) {
                           return &other != &comm && other.share_group() == comm.share_group();
                         });
  if (is_shared) {
    return fail(Code::kInvalidUsage,
                "a communicator that shares resources with another (splitShare, shrinkShare) "
                "cannot be suspended");
  }
  return run_lifecycle_job([&comm]() -> Result<void> {
    PLEXUS_TRY(visit, Visit::begin(comm.process(), &comm));
    return suspend_now(*visit);
  });
}

Result<void> resume(Communicator& comm) {
  if (comm.state() != Code::kSuccess || comm.finalized.load(std::memory_order_relaxed)) {
    PLEXUS_TRY(check_usable(comm));
  }
  if (!comm.runner().is_released()) {
    return fail(Code::kInvalidUsage, "the communicator is not suspended");
  }
  comm.runner().restore();
  return ok();
}

Result<HeldMemory> measure_memory(Communicator& comm) {
  if (comm.state() != Code::kSuccess) {
    PLEXUS_TRY(check_usable(comm));
  }
  return HeldMemory{.suspendable = connections_of(comm).held_bytes() + comm.runner().held_bytes(),
                    .lasting = comm.one_sided() == nullptr ? 0 : comm.one_sided()->held_bytes(),
                    .is_suspended = comm.runner().is_released()};
}

}  // namespace plexus
