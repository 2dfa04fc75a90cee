// SPDX-License-Identifier: Apache-2.0
// The benchmark, which every worker runs in step with the others: for each variant, size and place
// (out of place, in place) it warms up, times, checks, and passes the row to the worker that
// prints.
//
// Method of timing: an iteration is a barrier and then a batch of back-to-back operations
// (statistics.hpp); its time is the slowest worker's, divided by the operations of the batch.
#pragma once

#include <functional>

#include "core/base/result.hpp"
#include "tools/cli/perf/control.hpp"
#include "tools/cli/perf/ranks.hpp"

namespace plexus::perf {

using TakeRow = std::function<Result<void>(const Row& row)>;

/// `take_row` may be empty: this worker does not print. Returns the number of wrong elements of all
/// workers.
[[nodiscard]] Result<uint64_t> run_benchmark(const PerfOptions& options,
                                             RankSet& ranks,
                                             Control& control,
                                             const TakeRow& take_row);

/// Size of each buffer for the largest operation of the run.
[[nodiscard]] size_t compute_largest_bytes(const PerfOptions& options);

}  // namespace plexus::perf
