// SPDX-License-Identifier: Apache-2.0
// Measurements on hosts that move their virtual cores: two cores exchange data several times as
// fast while they are near each other, and a host may move them at any moment, for minutes or for a
// tenth of a second.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/base/result.hpp"
#include "tools/cli/measure.hpp"
#include "tools/cli/tune/stage.hpp"

namespace plexus::tune {

/// A run of `plexus perf`, which is repeated.
struct SteadyRun {
  MeasureInput input;
  std::vector<std::vector<MeasuredTime>> times = {};  // of each repetition that counts
};

struct SteadyReport {
  int moved = 0;  // runs without a repetition beside near cores
  int turns = 0;  // in which all were measured
};

using MeasureFunction = std::function<Result<std::vector<MeasuredTime>>(const MeasureInput&)>;

/// Measures each run `count` times, in turns. Before and after each a probe is timed, an all-gather
/// of 256 KiB by 2 ranks; it starts when the probe is not longer than 1.5 times the least of all
/// probes, and counts if the one after it is not, either. This waits for some probes per run; from
/// then on, and on a machine that is busy, everything is measured at once. Of a run that was never
/// beside near cores all repetitions count. When the stage is over nothing more is measured: then
/// runs have fewer repetitions, or none. Nor does a host that is behind its time wait for cores.
Result<SteadyReport> measure_steadily(std::span<SteadyRun> runs,
                                      int count,
                                      Stage& stage,
                                      const MeasureFunction& measure = measure_times);

}  // namespace plexus::tune
