// SPDX-License-Identifier: Apache-2.0
// Making, ending and querying communicators.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/api/arguments.hpp"
#include "core/api/guard.hpp"
#include "core/base/config.hpp"
#include "core/base/file.hpp"
#include "core/base/log.hpp"
#include "core/comm/after_fork.hpp"
#include "core/comm/group.hpp"
#include "core/comm/init.hpp"
#include "core/comm/lifecycle.hpp"
#include "core/comm/process.hpp"
#include "core/comm/split.hpp"
#include "core/comm/suspend.hpp"
#include "core/join/job_secret.hpp"
#include "core/join/rendezvous.hpp"
#include "core/join/wire_up.hpp"

using plexus::check_config;
using plexus::check_pointer;
using plexus::check_ranks;
using plexus::Code;
using plexus::enter;
using plexus::enter_ready;
using plexus::fail;
using plexus::guard;
using plexus::inner;
using plexus::is_parents;
using plexus::ok;
using plexus::Result;

namespace plexus {
namespace {

Result<std::vector<UniqueId>> read_ids(std::span<const ncclUniqueId> raw) {
  std::vector<UniqueId> ids;
  for (const ncclUniqueId& id : raw) {
    PLEXUS_TRY(parsed, UniqueId::from_bytes(std::as_bytes(
                           std::span<const char, NCCL_UNIQUE_ID_BYTES>(id.internal))));
    ids.push_back(parsed);
  }
  return ids;
}

/// As NCCL: rank 0 says it once, alone at the levels VERSION and WARN, else among the lines of
/// INFO. The file tells which of several libraries of that name the process has.
void tell_version(int rank) {
  static std::atomic<bool> is_warned{false};
  if (rank != 0 || is_warned.exchange(true, std::memory_order_relaxed)) {
    return;
  }
  const auto level =
      log_enabled(LogLevel::kInfo, Subsystem::kInit) ? LogLevel::kInfo : LogLevel::kVersion;
  log(level, Subsystem::kInit, __FILE__, __LINE__,
      fmt::format("NCCL version {}.{}.{} (Plexus {}, {})", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH,
                  PLEXUS_VERSION, find_own_file().string()));
}

Result<void> init(ncclComm_t* comm,
                  int nranks,
                  std::span<const ncclUniqueId> raw_ids,
                  int rank,
                  const ncclConfig_t* config) {
  PLEXUS_TRY(check_pointer(comm, "comm"));
  *comm = nullptr;
  PLEXUS_TRY(check_ranks(nranks, rank));
  PLEXUS_TRY(ids, read_ids(raw_ids));
  PLEXUS_TRY(comm_config, check_config(config));
  tell_version(rank);
  return init_rank(Process::instance(), inner(comm), nranks, ids, rank, comm_config);
}

Result<void> end(ncclComm_t comm, Result<void> (*how)(Process&, Communicator*)) {
  if (is_parents(comm)) {
    forget(inner(comm));
    return ok();
  }
  if (comm == nullptr) {
    return ok();
  }
  UseCheck* const check = Process::instance().check();
  if (check == nullptr) {
    return how(Process::instance(), inner(comm));
  }
  const auto mark = check->buffers.mark(comm);
  PLEXUS_TRY(how(Process::instance(), inner(comm)));
  check->note_end(comm, mark);
  return ok();
}

/// A rank of the communicator that grows.
Result<void> grow_from(ncclComm_t comm,
                       ncclComm_t* newcomm,
                       int nranks,
                       const ncclUniqueId* raw_id,
                       const ncclConfig_t* config) {
  PLEXUS_TRY(visit, enter_ready(comm));
  if (nranks <= visit->nranks()) {
    return fail(Code::kInvalidArgument,
                "nRanks is {}: a communicator of {} ranks grows to more; ncclCommShrink makes it "
                "smaller",
                nranks, visit->nranks());
  }
  std::vector<UniqueId> ids;
  if (raw_id != nullptr) {
    PLEXUS_TRY(read, read_ids({raw_id, 1}));
    ids = std::move(read);
  }
  const UniqueId* const id = ids.empty() ? nullptr : &ids.front();
  if (config == nullptr) {
    return grow(*visit, inner(newcomm), nranks, id, nullptr);
  }
  PLEXUS_TRY(comm_config, check_config(config));
  return grow(*visit, inner(newcomm), nranks, id, &comm_config);
}

void write_id(const UniqueId& id, ncclUniqueId* raw) {
  const auto bytes = id.to_bytes();
  static_assert(sizeof(bytes) == NCCL_UNIQUE_ID_BYTES);
  std::memcpy(raw->internal, bytes.data(), bytes.size());
}

}  // namespace
}  // namespace plexus

using plexus::guard_in_group;

PLEXUS_PUBLIC(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * uniqueId)) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(check_pointer(uniqueId, "uniqueId"));
    PLEXUS_TRY(config, plexus::Process::instance().read_settings());
    PLEXUS_TRY(id, plexus::start_root(config));
    plexus::write_id(id, uniqueId);
    return ok();
  });
}

namespace plexus {
namespace {

/// The key; empty: none.
Result<std::string> check_encryption(const ncclEncryptionConfig_t* config) {
  if (config == nullptr) {
    return std::string();
  }
  ncclEncryptionConfig_t mine = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
  if (config->size < offsetof(ncclEncryptionConfig_t, mode) || config->magic != NCCL_API_MAGIC) {
    return fail(Code::kInvalidArgument,
                "ncclEncryptionConfig_t is not initialised: start from "
                "NCCL_ENCRYPTION_CONFIG_INITIALIZER");
  }
  std::memcpy(&mine, config, copied_bytes<ncclEncryptionConfig_t>(config->size));
  if (mine.mode == NCCL_ENCRYPTION_MODE_NONE) {
    return std::string();
  }
  if (mine.mode != NCCL_ENCRYPTION_MODE_PSK) {
    return fail(Code::kInvalidArgument,
                "ncclEncryptionConfig_t.mode is {}; it must be NCCL_ENCRYPTION_MODE_NONE or "
                "NCCL_ENCRYPTION_MODE_PSK",
                mine.mode);
  }
  if (mine.psk == nullptr || std::strlen(mine.psk) < kJobSecretBytesMin) {
    return fail(Code::kInvalidArgument,
                "ncclEncryptionConfig_t.psk {}: it must have {} characters or more",
                mine.psk == nullptr ? "is NULL" : "is too short", kJobSecretBytesMin);
  }
  return std::string(mine.psk);
}

}  // namespace
}  // namespace plexus

PLEXUS_PUBLIC(ncclResult_t, ncclSetEncryption, (const ncclEncryptionConfig_t* config)) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(key, plexus::check_encryption(config));
    plexus::Process::instance().set_encryption(std::move(key));
    return ok();
  });
}

PLEXUS_EXTENSION ncclResult_t plexusGetUniqueIdFromEnvironment(ncclUniqueId* id,
                                                               int* nranks,
                                                               int* rank) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(check_pointer(id, "id"));
    PLEXUS_TRY(check_pointer(nranks, "nranks"));
    PLEXUS_TRY(check_pointer(rank, "rank"));
    PLEXUS_TRY(config, plexus::Process::instance().read_settings());
    PLEXUS_TRY(wired, plexus::wire_up(config, plexus::read_launch_variable));
    plexus::write_id(wired.id, id);
    *nranks = wired.nranks;
    *rank = wired.rank;
    return ok();
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclCommInitRank,
              (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank)) {
  return guard_in_group([&] { return plexus::init(comm, nranks, {&commId, 1}, rank, nullptr); });
}

PLEXUS_PUBLIC(
    ncclResult_t,
    ncclCommInitRankConfig,
    (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config)) {
  return guard_in_group([&] { return plexus::init(comm, nranks, {&commId, 1}, rank, config); });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclCommInitRankScalable,
              (ncclComm_t * newcomm,
               int nranks,
               int myrank,
               int nId,
               ncclUniqueId* commIds,
               ncclConfig_t* config)) {
  return guard_in_group([&]() -> Result<void> {
    PLEXUS_TRY(check_pointer(commIds, "commIds"));
    if (nId <= 0 || nId > nranks) {
      return fail(Code::kInvalidArgument, "nId {} must be in 1..nranks ({})", nId, nranks);
    }
    return plexus::init(newcomm, nranks, {commIds, static_cast<size_t>(nId)}, myrank, config);
  });
}

PLEXUS_PUBLIC(ncclResult_t, ncclCommInitAll, (ncclComm_t * comms, int ndev, const int* devlist)) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(check_pointer(comms, "comms"));
    if (ndev < 1) {
      return fail(Code::kInvalidArgument, "ndev is {}: a communicator has at least one rank", ndev);
    }
    if (devlist != nullptr &&
        std::any_of(devlist, devlist + ndev, [](int device) { return device < 0; })) {
      return fail(Code::kInvalidArgument, "devlist contains a negative device number");
    }
    plexus::tell_version(0);
    return plexus::init_all(plexus::Process::instance(), inner(comms), ndev, devlist);
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclCommSplit,
              (ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config)) {
  return guard_in_group([&]() -> Result<void> {
    PLEXUS_TRY(check_pointer(newcomm, "newcomm"));
    *newcomm = nullptr;
    PLEXUS_TRY(visit, enter(comm));
    PLEXUS_TRY(plexus::check_splittable(*visit));
    if (config == nullptr) {
      return plexus::split(*visit, color, key, inner(newcomm), nullptr);
    }
    PLEXUS_TRY(comm_config, check_config(config));
    return plexus::split(*visit, color, key, inner(newcomm), &comm_config);
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclCommShrink,
              (ncclComm_t comm,
               int* excludeRanksList,
               int excludeRanksCount,
               ncclComm_t* newcomm,
               ncclConfig_t* config,
               int shrinkFlags)) {
  return guard_in_group([&]() -> Result<void> {
    PLEXUS_TRY(check_pointer(newcomm, "newcomm"));
    *newcomm = nullptr;
    PLEXUS_TRY(visit, enter(comm));
    PLEXUS_TRY(check_pointer(excludeRanksList, "excludeRanksList"));
    PLEXUS_TRY(plexus::check_shrinkable(*visit));
    const int nranks = visit->nranks();
    if (excludeRanksCount <= 0 || excludeRanksCount >= nranks) {
      return fail(Code::kInvalidArgument, "excludeRanksCount {} must be in 1..{}",
                  excludeRanksCount, nranks - 1);
    }
    const std::span<int> excluded(excludeRanksList, static_cast<size_t>(excludeRanksCount));
    std::sort(excluded.begin(), excluded.end());
    for (const int rank : excluded) {
      if (rank < 0 || rank >= nranks || rank == visit->rank()) {
        return fail(Code::kInvalidArgument,
                    "excludeRanksList contains rank {}: it may list only other ranks of the "
                    "communicator (0..{})",
                    rank, nranks - 1);
      }
    }
    const bool aborts = (shrinkFlags & NCCL_SHRINK_ABORT) != 0;
    if (config == nullptr) {
      return plexus::shrink(*visit, excluded, inner(newcomm), nullptr, aborts);
    }
    PLEXUS_TRY(comm_config, check_config(config));
    return plexus::shrink(*visit, excluded, inner(newcomm), &comm_config, aborts);
  });
}

PLEXUS_PUBLIC(ncclResult_t, ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId* uniqueId)) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(visit, enter_ready(comm));
    PLEXUS_TRY(check_pointer(uniqueId, "uniqueId"));
    PLEXUS_TRY(config, plexus::Process::instance().read_settings());
    PLEXUS_TRY(id, plexus::start_root(config));
    visit->grow_id = id;
    plexus::write_id(id, uniqueId);
    return ok();
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclCommGrow,
              (ncclComm_t comm,
               int nRanks,
               const ncclUniqueId* uniqueId,
               int rank,
               ncclComm_t* newcomm,
               ncclConfig_t* config)) {
  return guard_in_group([&]() -> Result<void> {
    PLEXUS_TRY(check_pointer(newcomm, "newcomm"));
    *newcomm = nullptr;
    if (comm == nullptr) {
      PLEXUS_TRY(check_pointer(uniqueId, "uniqueId"));
      return plexus::init(newcomm, nRanks, {uniqueId, 1}, rank, config);
    }
    if (rank != -1) {
      return fail(Code::kInvalidArgument,
                  "rank is {}: a rank of comm keeps its number and gives -1; a new rank gives NULL "
                  "for comm",
                  rank);
    }
    return plexus::grow_from(comm, newcomm, nRanks, uniqueId, config);
  });
}

PLEXUS_PUBLIC(ncclResult_t, ncclCommFinalize, (ncclComm_t comm)) {
  return guard([&]() -> Result<void> {
    if (comm == nullptr || is_parents(comm)) {
      return ok();
    }
    PLEXUS_TRY(visit, enter(comm));
    auto* const check = visit->process().check();
    const auto mark = check == nullptr ? plexus::StreamOrder::Clock{} : check->buffers.mark(comm);
    PLEXUS_TRY(plexus::finalize(*visit));
    if (check != nullptr) {
      check->note_end(comm, mark);
    }
    return ok();
  });
}

PLEXUS_PUBLIC(ncclResult_t, ncclCommDestroy, (ncclComm_t comm)) {
  return guard([&] { return plexus::end(comm, plexus::destroy); });
}

PLEXUS_PUBLIC(ncclResult_t, ncclCommAbort, (ncclComm_t comm)) {
  return guard([&] { return plexus::end(comm, plexus::abort); });
}

PLEXUS_PUBLIC(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int revokeFlags)) {
  return guard([&]() -> Result<void> {
    if (comm == nullptr) {
      return ok();
    }
    PLEXUS_TRY(visit, enter(comm));
    if (revokeFlags != NCCL_REVOKE_DEFAULT) {
      return fail(Code::kInvalidArgument, "revokeFlags is {}, only NCCL_REVOKE_DEFAULT is defined",
                  revokeFlags);
    }
    return plexus::revoke(*visit);
  });
}

PLEXUS_PUBLIC(ncclResult_t, ncclCommSuspend, (ncclComm_t comm, int flags)) {
  return guard_in_group([&]() -> Result<void> {
    PLEXUS_TRY(visit, enter(comm));
    if (flags != NCCL_SUSPEND_MEM) {
      return fail(Code::kInvalidArgument, "flags is {}, only NCCL_SUSPEND_MEM is defined", flags);
    }
    return plexus::suspend(*visit);
  });
}

PLEXUS_PUBLIC(ncclResult_t, ncclCommResume, (ncclComm_t comm)) {
  return guard_in_group([&]() -> Result<void> {
    PLEXUS_TRY(visit, enter(comm));
    return plexus::resume(*visit);
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclCommMemStats,
              (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value)) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(visit, enter(comm));
    PLEXUS_TRY(check_pointer(value, "value"));
    PLEXUS_TRY(held, plexus::measure_memory(*visit));
    switch (stat) {
      case ncclStatGpuMemSuspend:
        *value = held.suspendable;
        return ok();
      case ncclStatGpuMemSuspended:
        *value = held.is_suspended ? 1 : 0;
        return ok();
      case ncclStatGpuMemPersist:
        *value = held.lasting;
        return ok();
      case ncclStatGpuMemTotal:
        *value = held.suspendable + held.lasting;
        return ok();
      default:
        return fail(Code::kInvalidArgument, "stat is {}, which is no ncclCommMemStat_t",
                    static_cast<int>(stat));
    }
  });
}

PLEXUS_PUBLIC(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* asyncError)) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(visit, enter(comm));
    PLEXUS_TRY(check_pointer(asyncError, "asyncError"));
    *asyncError = static_cast<ncclResult_t>(plexus::async_error(*visit));
    return ok();
  });
}

namespace plexus {
namespace {

/// Answers with a number that is known once the communicator is ready.
ncclResult_t query(ncclComm_t comm,
                   int* out,
                   const char* what,
                   int (Communicator::*ask)() const noexcept) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(visit, enter(comm));
    PLEXUS_TRY(check_pointer(out, what));
    if (async_error(*visit) == Code::kInProgress) {
      return fail(Code::kInvalidArgument,
                  "the communicator is not ready: poll ncclCommGetAsyncError until it is");
    }
    *out = ((*visit).*ask)();
    return ok();
  });
}

}  // namespace
}  // namespace plexus

PLEXUS_PUBLIC(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int* count)) {
  return plexus::query(comm, count, "count", &plexus::Communicator::nranks);
}
PLEXUS_PUBLIC(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int* rank)) {
  return plexus::query(comm, rank, "rank", &plexus::Communicator::rank);
}
PLEXUS_PUBLIC(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int* device)) {
  return plexus::query(comm, device, "device", &plexus::Communicator::shown_device);
}
