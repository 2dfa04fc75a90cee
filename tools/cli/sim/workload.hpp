// SPDX-License-Identifier: Apache-2.0
// A job as a list of calls, from a file: written by hand, or recorded from a run.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "kernels/layout/collective.hpp"

namespace plexus {

/// Each rank sends so many bytes to the one `distance` further. With `wraps` the last ranks send to
/// the first, else to nobody.
struct WorkloadExchange {
  int distance = 0;  // may be negative, never 0
  bool wraps = false;
  uint64_t bytes = 0;
  friend auto operator<=>(const WorkloadExchange&, const WorkloadExchange&) = default;
};

struct WorkloadCall {
  Collective collective = Collective::kAllReduce;
  std::vector<WorkloadExchange> exchanges = {};  // a group of these, in place of a collective
  uint64_t bytes = 0;                            // of a rank's larger buffer
  uint64_t times = 1;
};

/// By hand: {"calls": [{"collective": "all_reduce", "bytes": 1048576, "times": 12},
/// {"exchange": [{"distance": 1, "bytes": 65536, "wraps": true}], "times": 4}]}. Recorded: a trace
/// of plugins/profiler-trace, a list of events; taken are the calls of the lowest rank, whose sends
/// and receives say what each rank does. An Error names the first call or event that is wrong.
Result<std::vector<WorkloadCall>> parse_workload(std::string_view text);

}  // namespace plexus
