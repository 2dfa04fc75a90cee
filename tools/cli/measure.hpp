// SPDX-License-Identifier: Apache-2.0
// Numbers from `plexus perf`: how long a call takes on this machine with one algorithm and
// protocol allowed. `plexus explain --measure` and `plexus tune` run it. Threads: one at a time, as
// it sets NCCL_ALGO and NCCL_PROTO.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "kernels/layout/collective.hpp"
#include "kernels/layout/protocol.hpp"

namespace plexus {

struct MeasureInput {
  Collective collective = Collective::kAllReduce;
  std::string algorithm;  // as NCCL_ALGO takes it
  Protocol protocol = Protocol::kSimple;
  int nranks = 2;
  std::string mode = "procs";
  size_t size_bytes = 0;
  size_t size_bytes_last = 0;  // above `size_bytes`: all sizes up to it, by factors of kSizeFactor
  bool over_sockets = false;   // ranks meet over loopback TCP only
  int budget_ms = 0;           // iterations for so long; 0: `perf`'s number of them
};

inline constexpr size_t kSizeFactor = 4;

/// Microseconds of a call, over the iterations of a run.
struct MeasuredTime {
  size_t size_bytes;
  bool in_place;
  double median_us;
  double least_us;  // what a disturbed machine can do when it is let
};

/// All sizes in a run of its own, each out of place and in place where both are possible.
/// kSystemError: it failed.
[[nodiscard]] Result<std::vector<MeasuredTime>> measure_times(const MeasureInput& input);
/// The first size, out of place.
[[nodiscard]] Result<MeasuredTime> measure_time(const MeasureInput& input);

}  // namespace plexus
