// SPDX-License-Identifier: Apache-2.0
// The ways to get the ranks of a benchmark: processes, threads or one thread here, or being one
// rank of a job that something else started. Each returns the number of wrong elements, or the
// Error of the rank at fault; none leaves a process behind.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/result.hpp"
#include "core/os/host.hpp"
#include "tools/cli/perf/launcher.hpp"
#include "tools/cli/perf/options.hpp"

namespace plexus::perf {

/// One process per rank, forked before the library is called, which a thread or a lock in it would
/// not survive. In the parent: the result. In a rank: nullopt, and the rank's own result is in
/// `*child`.
struct ChildResult {
  bool succeeded = false;
};
[[nodiscard]] Result<std::optional<uint64_t>> start_procs(const PerfOptions& options,
                                                          Reporter& reporter,
                                                          ChildResult* child);

/// One thread per rank. When a rank fails the others cannot be joined (their calls wait for it): it
/// is reported in `*broken`, and the caller ends the process without destructors.
[[nodiscard]] Result<uint64_t> start_threads(const PerfOptions& options,
                                             Reporter& reporter,
                                             bool* broken);

[[nodiscard]] Result<uint64_t> start_single(const PerfOptions& options, Reporter& reporter);

/// `options.nranks` is the job's. `reporter`: nullptr on every rank but 0. `job`: for ranks of a
/// launcher that gave no rendezvous; all of them are on this host.
struct JoinInput {
  Joined place;
  std::string job;
};
[[nodiscard]] Result<uint64_t> join_job(const PerfOptions& options,
                                        const JoinInput& input,
                                        Reporter* reporter);

/// Gives the calling thread, which is or will be `rank`, a core of its own, if it is wanted and
/// there are enough: two ranks that spin on one core hold each other up, as the scheduler may have
/// it.
inline void bind_rank(const PerfOptions& options, int rank) {
  if (options.binds && options.nranks <= cores_available()) {
    (void)bind_to_core(rank);  // refused: it runs all the same
  }
}

/// Seconds that ranks wait for each other at the start (PLEXUS_BOOTSTRAP_TIMEOUT).
[[nodiscard]] int bootstrap_timeout_s(const Environment& environment);

}  // namespace plexus::perf
