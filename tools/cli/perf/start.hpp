// SPDX-License-Identifier: Apache-2.0
// The ways to get the ranks of a benchmark: processes, threads or one thread here, or as one rank
// of a job that was started from outside. Each returns the number of wrong elements, or the Error
// of the failed rank; none leaves a process behind.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/result.hpp"
#include "core/os/host.hpp"
#include "tools/cli/perf/launcher.hpp"
#include "tools/cli/perf/options.hpp"

namespace plexus::perf {

/// One process per rank, forked before the library is called, because its threads and locks would
/// not survive a fork. In the parent: returns the result. In a rank: returns nullopt, and the
/// rank's own result is in `*child`.
struct ChildResult {
  bool succeeded = false;
};
[[nodiscard]] Result<std::optional<uint64_t>> start_procs(const PerfOptions& options,
                                                          Reporter& reporter,
                                                          ChildResult* child);

/// One thread per rank. If a rank fails, the other threads cannot be joined (their calls wait for
/// it): the failure is reported in `*broken`, and the caller exits without destructors.
[[nodiscard]] Result<uint64_t> start_threads(const PerfOptions& options,
                                             Reporter& reporter,
                                             bool* broken);

[[nodiscard]] Result<uint64_t> start_single(const PerfOptions& options, Reporter& reporter);

/// `options.nranks` is the job's number. `reporter`: nullptr on every rank but 0. `job`: for a
/// launcher that provides no rendezvous; all its ranks are on this host.
struct JoinInput {
  Joined place;
  std::string job;
};
[[nodiscard]] Result<uint64_t> join_job(const PerfOptions& options,
                                        const JoinInput& input,
                                        Reporter* reporter);

/// Binds the calling thread, which is or will be `rank`, to a core of its own, if requested and if
/// there are enough: two ranks that spin on the same core delay each other.
inline void bind_rank(const PerfOptions& options, int rank) {
  if (options.binds && options.nranks <= cores_available()) {
    (void)bind_to_core(rank);  // on a refusal it runs unbound
  }
}

/// How many seconds ranks wait for each other at the start (PLEXUS_BOOTSTRAP_TIMEOUT).
[[nodiscard]] int bootstrap_timeout_s(const Environment& environment);

}  // namespace plexus::perf
