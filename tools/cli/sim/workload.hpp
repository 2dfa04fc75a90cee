// SPDX-License-Identifier: Apache-2.0
// A job as a list of calls, from a file: written by hand, or recorded from a run.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "kernels/layout/collective.hpp"

namespace plexus {

struct WorkloadCall {
  Collective collective = Collective::kAllReduce;
  uint64_t bytes = 0;  // of a rank's larger buffer
  uint64_t times = 1;
};

/// By hand: {"calls": [{"collective": "all_reduce", "bytes": 1048576, "times": 12}]}. Recorded: a
/// trace of docs/examples/chrome_profiler.c, a list of events; taken are the collectives of the
/// lowest rank. An Error names the first call or event that is wrong.
Result<std::vector<WorkloadCall>> parse_workload(std::string_view text);

}  // namespace plexus
