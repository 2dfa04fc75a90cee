// SPDX-License-Identifier: Apache-2.0
// `plexus sim --workload`: how long a job's calls and computing take together, by policy, what the
// critical path is made of, and what would help (tools/workload, docs/formats.md).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/cli/sim/call.hpp"
#include "tools/workload/predict.hpp"

namespace plexus {

/// A change of the job or of its cluster, as --what-if says it: "rate=2", "slow=1.2",
/// "order=dp,tp".
struct JobVariant {
  std::string what = "as it is";
  SimOptions options;
  double compute_factor = 1;
  int slow_rank = -1;
  double slow_factor = 1;
  std::string order;
  bool is_best = false;    // the best algorithm for each call, in place of a policy
  bool is_hidden = false;  // calls cost nothing
};

/// An Error names the keys. `work` tells what can be changed.
Result<JobVariant> parse_what_if(const std::string& text,
                                 const JobVariant& base,
                                 const Workload& work);

/// Predicts and prints or writes, as the options say.
Result<void> run_workload(const SimOptions& options, const Fabric* fabric);

}  // namespace plexus
