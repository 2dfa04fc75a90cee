// SPDX-License-Identifier: Apache-2.0
// A process of a job that was started from outside. The ranks meet through the library only: by the
// launcher's variables or NCCL_COMM_ID, and later all-gather and all-reduce in place of shared
// memory.
#include <algorithm>
#include <cstdlib>
#include <plexus.h>
#include <span>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "core/join/launched_rank.hpp"
#include "tools/cli/perf/start.hpp"

namespace plexus::perf {
namespace {

/// `call(rank)` for each of the thread's ranks, in one group.
template <class Call>
Result<void> call_grouped(const char* name, const RankSet& set, Call&& call) {
  PLEXUS_TRY(check_call("ncclGroupStart", ncclGroupStart()));
  for (const auto& rank : set.ranks()) {
    PLEXUS_TRY(check_call(name, call(*rank)));
  }
  return check_call(name, ncclGroupEnd());
}

/// Coordinates through the communicator under test, between its timed operations.
class CommControl final : public Control {
 public:
  CommControl(const RankSet& set, int nranks)
      : set_(set), nranks_(static_cast<size_t>(nranks)), all_(set.ranks().size()) {}

  Result<void> barrier() override {
    std::vector<float> tokens(set_.ranks().size());
    return call_grouped("ncclAllReduce", set_, [&, at = size_t{0}](const Rank& rank) mutable {
      float* const token = &tokens[at++];
      return ncclAllReduce(token, token, 1, ncclFloat32, ncclSum, rank.comm(), nullptr);
    });
  }

  /// Every rank sends the values of its worker; those of a worker's first rank are used.
  Result<void> fold(std::span<double> values, Fold how) override {
    const size_t count = values.size();
    PLEXUS_TRY(call_grouped("ncclAllGather", set_, [&, at = size_t{0}](const Rank& rank) mutable {
      std::vector<double>& all = all_[at++];
      all.resize(count * nranks_);
      return ncclAllGather(values.data(), all.data(), count, ncclFloat64, rank.comm(), nullptr);
    }));
    const std::vector<double>& all = all_.front();
    for (size_t i = 0; i < count; ++i) {
      values[i] = all[i];
      for (size_t rank = all_.size(); rank < nranks_; rank += all_.size()) {
        values[i] = fold_values(values[i], all[rank * count + i], how);
      }
    }
    return ok();
  }

 private:
  const RankSet& set_;
  size_t nranks_;
  std::vector<std::vector<double>> all_;  // [rank of the thread][nranks][values]
};

/// Where all ranks are, on every thread.
Result<std::vector<RankPlace>> gather_places(const RankSet& set,
                                             const PerfOptions& options,
                                             int first_rank) {
  std::vector<std::vector<RankPlace>> places(set.ranks().size());
  std::vector<RankPlace> mine;
  for (const auto& rank : set.ranks()) {
    mine.push_back(make_place(rank->rank(), getpid(), rank->rank() - first_rank));
  }
  PLEXUS_TRY(call_grouped("ncclAllGather", set, [&, at = size_t{0}](const Rank& rank) mutable {
    places[at].resize(static_cast<size_t>(options.nranks));
    RankPlace* const all = places[at].data();
    return ncclAllGather(&mine[at++], all, sizeof(RankPlace), ncclInt8, rank.comm(), nullptr);
  }));
  return std::move(places.front());
}

}  // namespace

Result<JoinInput> find_join_input(const Joined& flags) {
  if (!flags.rendezvous.empty()) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread exists yet
    setenv("NCCL_COMM_ID", flags.rendezvous.c_str(), 1);
  }
  JoinInput input{.process = flags.rank, .nprocesses = flags.nranks, .id = {}, .name = {}};
  if (flags.rank >= 0) {
    PLEXUS_TRY(check_call("ncclGetUniqueId", ncclGetUniqueId(&input.id)));
    input.name = fmt::format("rank {}", input.process);
    return input;
  }
  PLEXUS_TRY(
      check_call("plexusGetUniqueIdFromEnvironment",
                 plexusGetUniqueIdFromEnvironment(&input.id, &input.nprocesses, &input.process)));
  PLEXUS_TRY(launched, find_launched_rank(read_launch_variable));
  input.name = fmt::format("rank {} ({})", input.process, launched.value().job);
  return input;
}

Result<JoinInput> split_job(const JoinInput& job, const Split& split) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread exists yet
  if (std::getenv("NCCL_COMM_ID") != nullptr) {
    return fail(
        Code::kInvalidUsage,
        "NCCL_TESTS_SPLIT cannot be used with NCCL_COMM_ID or --rendezvous, since every job "
        "needs an id of its own: unset it, and start the ranks with mpirun or srun");
  }
  JoinInput part{.process = 0, .nprocesses = 0, .id = {}, .name = job.name};
  const int color = split.color_of(job.process);
  int first = -1;
  for (int process = 0; process < job.nprocesses; ++process) {
    if (split.color_of(process) == color) {
      first = first < 0 ? process : first;
      part.process += process < job.process ? 1 : 0;
      ++part.nprocesses;
    }
  }
  std::vector<ncclUniqueId> ids(static_cast<size_t>(job.nprocesses));
  ncclUniqueId& mine = ids[static_cast<size_t>(job.process)];
  if (first == job.process) {
    PLEXUS_TRY(check_call("ncclGetUniqueId", ncclGetUniqueId(&mine)));
  }
  ncclComm_t comm = nullptr;
  PLEXUS_TRY(
      check_call("ncclCommInitRank", ncclCommInitRank(&comm, job.nprocesses, job.id, job.process)));
  Result<void> met =
      check_call("ncclAllGather",
                 ncclAllGather(&mine, ids.data(), sizeof(ncclUniqueId), ncclInt8, comm, nullptr));
  PLEXUS_TRY(check_call("ncclCommDestroy", ncclCommDestroy(comm)));
  PLEXUS_TRY(std::move(met));
  part.id = ids[static_cast<size_t>(first)];
  return part;
}

Result<uint64_t> join_job(const PerfOptions& options,
                          const JoinInput& input,
                          const Hooks& hooks,
                          bool* broken) {
  ProcessRanks process;
  process.first_rank = input.process * compute_workers(options).ranks_per_process();
  process.id = input.id;
  process.take_row = hooks.take_row;
  process.make_control = [&options, &hooks, first_rank = process.first_rank](
                             int thread, const RankSet& ranks) -> Result<std::unique_ptr<Control>> {
    PLEXUS_TRY(places, gather_places(ranks, options, first_rank));
    if (first_rank == 0 && thread == 0) {
      hooks.begin(places);
    }
    return Result<std::unique_ptr<Control>>(std::make_unique<CommControl>(ranks, options.nranks));
  };
  return run_process(options, process, broken);
}

}  // namespace plexus::perf
