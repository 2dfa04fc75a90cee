// SPDX-License-Identifier: Apache-2.0
// The host's side of nccl_device.h that tells about a communicator: properties and teams. The rest
// of NCCL's device API is in nccl_unsupported.cpp.
#include "core/api/nccl_device.h"

#include <algorithm>
#include <cstring>

#include "core/api/arguments.hpp"
#include "core/api/guard.hpp"
#include "core/comm/lifecycle.hpp"
#include "core/setup/topology.hpp"

namespace plexus {
namespace {

/// NCCL's teams are arithmetic: ranks first, first + stride, ... of the communicator.
struct Teams {
  ncclTeam_t lsa;   // ranks whose memory this one loads and stores: those of its host
  ncclTeam_t rail;  // the ranks with this one's place, one per host
};

/// Where hosts have different numbers of ranks, or ranks that do not follow each other, no such
/// team has more than one rank.
Teams compute_teams(const HostGroups& groups, int nranks, int rank) {
  const auto per_host = static_cast<int>(groups.front().size());
  const bool is_regular = std::all_of(groups.begin(), groups.end(), [&](const auto& group) {
    return static_cast<int>(group.size()) == per_host &&
           group.back().rank - group.front().rank == per_host - 1;
  });
  const int width = is_regular ? per_host : 1;
  return {.lsa = {width, rank % width, 1}, .rail = {nranks / width, rank / width, width}};
}

Result<Teams> teams_of(ncclComm_t comm) {
  PLEXUS_TRY(visit, enter_ready(comm));
  return compute_teams(group_by_reach(*visit->setup().infos), visit->nranks(), visit->rank());
}

/// For functions that return a team or a rank: nothing of it where they fail.
template <class Value, class Body>
Value value_of(Value otherwise, const Body& body) noexcept {
  (void)guard([&]() -> Result<void> {
    PLEXUS_TRY(value, body());
    otherwise = value;
    return ok();
  });
  return otherwise;
}

constexpr ncclTeam_t kNoTeam{};

/// How many bytes the caller's release has.
size_t known_bytes(const ncclCommProperties_t& properties) {
  constexpr unsigned kReleaseOfHash = 23100;
  const size_t known = properties.version < kReleaseOfHash
                           ? offsetof(ncclCommProperties_t, commHash)
                           : sizeof(ncclCommProperties_t);
  return std::min(properties.size, known);
}

}  // namespace
}  // namespace plexus

using plexus::enter_ready;
using plexus::guard;
using plexus::kNoTeam;
using plexus::Result;
using plexus::value_of;

PLEXUS_PUBLIC(ncclResult_t,
              ncclCommQueryProperties,
              (ncclComm_t comm, ncclCommProperties_t* properties)) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(visit, enter_ready(comm));
    PLEXUS_TRY(plexus::check_pointer(properties, "properties"));
    if (properties->magic != NCCL_API_MAGIC ||
        properties->size < offsetof(ncclCommProperties_t, rank)) {
      return plexus::fail(plexus::Code::kInvalidUsage,
                          "ncclCommProperties_t is not initialised: start from "
                          "NCCL_COMM_PROPERTIES_INITIALIZER");
    }
    const plexus::HostGroups groups = plexus::group_by_reach(*visit->setup().infos);
    const plexus::Teams teams = plexus::compute_teams(groups, visit->nranks(), visit->rank());
    ncclCommProperties_t answer{};
    answer.size = properties->size;
    answer.magic = properties->magic;
    answer.version = properties->version;
    answer.rank = visit->rank();
    answer.nRanks = visit->nranks();
    answer.cudaDev = visit->shown_device();
    answer.nvmlDev = visit->shown_device();
    answer.nLsaTeams = teams.rail.nRanks;
    answer.hostRmaSupport = visit->one_sided() != nullptr;
    answer.commHash = visit->setup().group;
    std::memcpy(properties, &answer, plexus::known_bytes(*properties));
    return plexus::ok();
  });
}

PLEXUS_PUBLIC(ncclTeam_t, ncclTeamWorld, (ncclComm_t comm)) {
  return value_of(kNoTeam, [&]() -> Result<ncclTeam_t> {
    PLEXUS_TRY(visit, enter_ready(comm));
    return ncclTeam_t{visit->nranks(), visit->rank(), 1};
  });
}

PLEXUS_PUBLIC(ncclTeam_t, ncclTeamLsa, (ncclComm_t comm)) {
  return value_of(kNoTeam, [&]() -> Result<ncclTeam_t> {
    PLEXUS_TRY(teams, plexus::teams_of(comm));
    return teams.lsa;
  });
}

PLEXUS_PUBLIC(ncclTeam_t, ncclTeamRail, (ncclComm_t comm)) {
  return value_of(kNoTeam, [&]() -> Result<ncclTeam_t> {
    PLEXUS_TRY(teams, plexus::teams_of(comm));
    return teams.rail;
  });
}

PLEXUS_PUBLIC(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank)) {
  return value_of(-1, [&]() -> Result<int> {
    PLEXUS_TRY(visit, enter_ready(comm));
    return visit->rank() + (rank - team.rank) * team.stride;
  });
}

PLEXUS_PUBLIC(int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank)) {
  return value_of(-1, [&]() -> Result<int> {
    PLEXUS_TRY(teams, plexus::teams_of(comm));
    return teams.lsa.rank + (rank - team.rank) * team.stride;
  });
}
