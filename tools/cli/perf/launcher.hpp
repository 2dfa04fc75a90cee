// SPDX-License-Identifier: Apache-2.0
// The rank and job of this process, from the variables of job launchers: Open MPI, MPICH and others
// with PMI, torchrun, Slurm. Reads through `Environment`, which tests replace.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/base/result.hpp"

namespace plexus::perf {

/// The value of a variable, nullptr when it is not set.
using Environment = std::function<const char*(const char* name)>;

struct LaunchedRank {
  std::string launcher;  // for error messages
  int rank = 0;
  int nranks = 0;
  int nranks_on_host = 0;  // 0: not provided by the launcher
  std::string
      job;  // equal on all ranks of the job and on no other job of this host; empty: unknown
  std::string rendezvous;  // HOST:PORT; empty: none given
};

/// nullopt: not started by a known launcher. `parent`: a text that identifies the parent process,
/// which is the job's key if the launcher provides none but is the parent of every rank.
[[nodiscard]] Result<std::optional<LaunchedRank>> find_launched_rank(const Environment& environment,
                                                                     const std::string& parent);

/// Identifies the parent process, also against a later process with the same id.
[[nodiscard]] std::string describe_parent();

}  // namespace plexus::perf
