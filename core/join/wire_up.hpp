// SPDX-License-Identifier: Apache-2.0
// Wire-up of a job: a unique id for the ranks that a launcher started, without anything else to
// pass it on: by what the launcher offers (PMI, PMIx), else by an address that all ranks derive
// from its variables. plexusGetUniqueIdFromEnvironment.
//
//   PLEXUS_TRY(wired, wire_up(config, read_launch_variable));  // under srun, mpirun, torchrun
//   return wired.rank;  // of wired.nranks, which all have wired.id
#pragma once

#include <string>

#include "core/base/config.hpp"
#include "core/base/result.hpp"
#include "core/control/unique_id.hpp"
#include "core/join/launched_rank.hpp"

namespace plexus {

struct WireUp {
  UniqueId id;
  int rank = 0;
  int nranks = 0;
};

/// All ranks of the job call it, once. Blocks until rank 0 has come where the launcher passes the
/// id on, at most for PLEXUS_BOOTSTRAP_TIMEOUT. kInvalidUsage: no launcher has started this
/// process.
[[nodiscard]] Result<WireUp> wire_up(const Config& config, const LaunchVariables& variables);

}  // namespace plexus
