// SPDX-License-Identifier: Apache-2.0
// The ways to get the ranks of a benchmark: processes, threads or one thread here, or as one rank
// of a job that was started from outside. Each returns the number of wrong elements, or the Error
// of the failed rank; none leaves a process behind.
#pragma once

#include <cstdint>
#include <nccl.h>
#include <optional>
#include <string>

#include "core/base/result.hpp"
#include "core/os/host.hpp"
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

/// A rank of a job that was started from outside.
struct JoinInput {
  int rank = 0;
  int nranks = 0;
  ncclUniqueId id{};
  std::string name;  // for messages: "rank 2 (Slurm job 12 step 0, node2)"
};

/// `flags`: which rank this process is; its rank is -1: the launcher says so. kInvalidUsage:
/// neither suffices.
[[nodiscard]] Result<JoinInput> find_join_input(const Joined& flags);

/// `options.nranks` is the job's number. `reporter`: nullptr on every rank but 0.
[[nodiscard]] Result<uint64_t> join_job(const PerfOptions& options,
                                        const JoinInput& input,
                                        Reporter* reporter);

/// Binds the calling thread, which is or will be `rank`, to a core, if requested. Where there are
/// too few for all, only on request: the scheduler may know better who shares one.
inline void bind_rank(const PerfOptions& options, int rank) {
  if (options.binding == Binding::kShared || options.binding == Binding::kOne ||
      (options.binding == Binding::kOwn && options.nranks <= cores_available())) {
    (void)bind_to_core(options.binding == Binding::kOne ? 0 : rank);  // refused: it runs unbound
  }
}

}  // namespace plexus::perf
