// SPDX-License-Identifier: Apache-2.0
// Measurements by `plexus perf`: the duration of a call on this machine with one algorithm and
// protocol allowed. Used by `plexus explain --measure` and `plexus tune`. Threads: one at a time,
// because it sets NCCL_ALGO and NCCL_PROTO.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/result.hpp"
#include "kernels/layout/collective.hpp"
#include "kernels/layout/protocol.hpp"

namespace plexus {

struct MeasureInput {
  Collective collective = Collective::kAllReduce;
  std::string algorithm;  // spelled as for NCCL_ALGO
  Protocol protocol = Protocol::kSimple;
  int nranks = 2;
  std::string mode = "procs";
  std::string bind = "core";      // of `perf`
  std::string buffers = "plain";  // likewise
  size_t size_bytes = 0;
  // if above `size_bytes`: all sizes up to it, by factors of `factor`
  size_t size_bytes_last = 0;
  int factor = 4;
  bool over_sockets = false;  // ranks communicate over loopback TCP only
  // duration of the iterations; 0: `perf`'s default number of iterations
  int budget_ms = 0;
  Deadline deadline = Deadline::never();  // when the run is ended
};

/// Duration of a call in us, over the iterations of a run.
struct MeasuredTime {
  size_t size_bytes;
  bool in_place;
  double median_us;
  double least_us;  // least disturbed by other load
};

/// Measures all sizes in one run, each out of place and in place if both are possible.
/// kSystemError: it failed. kTimeout: it was not over by the deadline, or
/// tune::measurements_ended().
[[nodiscard]] Result<std::vector<MeasuredTime>> measure_times(const MeasureInput& input);
/// Measures the first size, out of place.
[[nodiscard]] Result<MeasuredTime> measure_time(const MeasureInput& input);

}  // namespace plexus
