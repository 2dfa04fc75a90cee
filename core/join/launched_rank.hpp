// SPDX-License-Identifier: Apache-2.0
// What the launcher of this process says in environment variables: which rank of which job it is,
// and where rank 0 is. Pure: reads through `LaunchVariables`. The variables may have any value:
// whatever is used is checked, and an Error names the variable.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/base/result.hpp"

namespace plexus {

/// The value of an environment variable, nullptr when it is not set.
using LaunchVariables = std::function<const char*(const char* name)>;

/// The variables of this process.
[[nodiscard]] const char* read_launch_variable(const char* name);

struct LaunchedRank {
  std::string launcher;  // for messages
  std::string job;       // for messages: "Slurm job 12 step 0, node2"
  int rank = 0;
  int nranks = 0;  // 0: only PMIx knows
  bool one_host = false;
  bool has_pmi = false;   // the launcher offers to pass data on by PMI-1 (PMI_FD)
  bool has_pmix = false;  // by PMIx
  std::string host;       // where rank 0 is; empty: not said
  std::string source;     // the variable that says so
  std::string misplaced;  // for messages: how this rank knows that it says so wrongly; else empty
  uint16_t port = 0;      // rank 0's; 0: `key` decides
  std::string key;        // equal on all ranks of this job, on no other job
};

/// nullopt: no launcher that we know has started this process.
[[nodiscard]] Result<std::optional<LaunchedRank>> find_launched_rank(
    const LaunchVariables& variables);

/// The first host of Slurm's list: "a[07-12,20],b" is a07.
[[nodiscard]] Result<std::string> first_of_node_list(const std::string& list);

}  // namespace plexus
