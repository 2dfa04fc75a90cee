// SPDX-License-Identifier: Apache-2.0
// Which rank of which job this process is, from the variables that job launchers set: Open MPI,
// MPICH and others that speak PMI, torchrun, Slurm. Reads through `Environment`, so tests need
// none.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/base/result.hpp"

namespace plexus::perf {

/// The value of a variable, nullptr when it is not set.
using Environment = std::function<const char*(const char* name)>;

struct LaunchedRank {
  std::string launcher;  // for messages
  int rank = 0;
  int nranks = 0;
  int nranks_on_host = 0;  // 0: the launcher does not say
  std::string
      job;  // the same text in all ranks of the job and of no other on this host; empty: unknown
  std::string rendezvous;  // HOST:PORT; empty: none given
};

/// nullopt: not started by a launcher we know. `parent`: text that names the parent process, the
/// job's key with launchers that give none but are every rank's parent.
[[nodiscard]] Result<std::optional<LaunchedRank>> find_launched_rank(const Environment& environment,
                                                                     const std::string& parent);

/// Names the parent process so that a later one with the same id has another name.
[[nodiscard]] std::string describe_parent();

}  // namespace plexus::perf
