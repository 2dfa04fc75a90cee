// SPDX-License-Identifier: Apache-2.0
// Communicators whose ranks meet by a unique id, or are all made by one call: first ones, and those
// that grow by ranks of other processes.
//
//   Communicator* comm = nullptr;
//   PLEXUS_TRY(init_rank(process, &comm, nranks, std::span(&id, 1), rank, CommConfig{}));
//   return ok();
#pragma once

#include <span>

#include "core/base/result.hpp"
#include "core/control/unique_id.hpp"
#include "core/setup/comm_config.hpp"

namespace plexus {

class Communicator;
class Process;

/// ncclCommInitRank and its relatives. With config.blocking false an Error kInProgress, and `*comm`
/// is being made; in a group `*comm` is set at its end. `*comm` is nullptr on failure.
Result<void> init_rank(Process& process,
                       Communicator** comm,
                       int nranks,
                       std::span<const UniqueId> ids,
                       int rank,
                       const CommConfig& config);

/// ncclCommGrow by a rank of `parent`, which keeps its number; new ranks call init_rank. All ranks
/// of `parent` call it; one has the unique id in `id` or in parent.grow_id, which this uses up.
/// `config` nullptr: the parent's. `*comm`: as init_rank.
Result<void> grow(Communicator& parent,
                  Communicator** comm,
                  int nranks,
                  const UniqueId* id,
                  const CommConfig* config);

/// ncclCommInitAll: `comms` has place for `ndevices`, all ranks of one communicator. `devices`
/// [ndevices]; nullptr: 0, 1, ... in turn.
Result<void> init_all(Process& process, Communicator** comms, int ndevices, const int* devices);

}  // namespace plexus
