// SPDX-License-Identifier: Apache-2.0
// The ways to get the ranks of a benchmark: in processes that are forked here, in this process, or
// in a process of a job that was started from outside; in each, a thread or several. Each returns
// the number of wrong elements, or the Error of the failed rank; none leaves a process behind.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nccl.h>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/os/host.hpp"
#include "tools/cli/perf/benchmark.hpp"
#include "tools/cli/perf/options.hpp"
#include "tools/cli/perf/report.hpp"

namespace plexus::perf {

[[nodiscard]] RankPlace make_place(int rank, int pid, int index) noexcept;

/// Called in the process that prints: `begin` once, when its ranks have been started.
struct Hooks {
  std::function<void(const std::vector<RankPlace>& places)> begin;
  TakeRow take_row;
};

/// The ranks of one process.
struct ProcessRanks {
  int first_rank = 0;
  ncclUniqueId id{};
  /// Keeps the ranks of a thread in step with all others. Called in that thread.
  std::function<Result<std::unique_ptr<Control>>(int thread, const RankSet& ranks)> make_control;
  /// The thread's ranks will not come any more. Empty: the others learn it through the library.
  std::function<void(int thread, const Error& error)> give_up;
  TakeRow take_row;  // of the first thread
};
/// Runs the benchmark on them. If a rank fails, other threads cannot be joined (their calls wait
/// for it): the failure is reported in `*broken`, and the caller exits without destructors.
[[nodiscard]] Result<uint64_t> run_process(const PerfOptions& options,
                                           const ProcessRanks& process,
                                           bool* broken);

/// Processes that are forked before the library is called, because its threads and locks would not
/// survive a fork. In the parent: returns the result. In a child: returns nullopt, and its own
/// result is in `*child`.
struct ChildResult {
  bool succeeded = false;
  bool broken = false;
};
[[nodiscard]] Result<std::optional<uint64_t>> start_procs(const PerfOptions& options,
                                                          const Hooks& hooks,
                                                          ChildResult* child);

/// All ranks in this process. `*broken`: as by `run_process`.
[[nodiscard]] Result<uint64_t> start_here(const PerfOptions& options,
                                          const Hooks& hooks,
                                          bool* broken);

/// A process of a job that was started from outside.
struct JoinInput {
  int process = 0;
  int nprocesses = 0;
  ncclUniqueId id{};
  std::string name;  // for messages: "rank 2 (Slurm job 12 step 0, node2)"
};

/// `flags`: which process this is; its rank is -1: the launcher says so. kInvalidUsage: neither
/// suffices.
[[nodiscard]] Result<JoinInput> find_join_input(const Joined& flags);

/// The part of a job that has this process's color, as a job: `job` meets once, and its first
/// process of each color makes the new id. With NCCL_COMM_ID there is only one id: kInvalidUsage.
[[nodiscard]] Result<JoinInput> split_job(const JoinInput& job, const Split& split);

/// `options.nranks` is the job's number. `hooks.begin` is called in the first process only,
/// `hooks.take_row` in each.
[[nodiscard]] Result<uint64_t> join_job(const PerfOptions& options,
                                        const JoinInput& input,
                                        const Hooks& hooks,
                                        bool* broken);

/// Binds the calling thread, which is or will be `worker`, to a core, if requested. Where there are
/// too few for all, only on request: the scheduler may know better who shares one.
inline void bind_worker(const PerfOptions& options, int worker) {
  if (options.binding == Binding::kShared || options.binding == Binding::kOne ||
      (options.binding == Binding::kOwn && compute_workers(options).count() <= cores_available())) {
    (void)bind_to_core(options.binding == Binding::kOne ? 0 : worker);  // refused: it runs unbound
  }
}

}  // namespace plexus::perf
