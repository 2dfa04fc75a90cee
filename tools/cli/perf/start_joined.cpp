// SPDX-License-Identifier: Apache-2.0
// One rank of a job that was started from outside. The ranks meet through the library only: by the
// launcher's variables or NCCL_COMM_ID, and later all-gather and all-reduce in place of shared
// memory.
#include <algorithm>
#include <cstdlib>
#include <plexus.h>
#include <vector>

#include <fmt/core.h>

#include "core/job/launched_rank.hpp"
#include "tools/cli/perf/benchmark.hpp"
#include "tools/cli/perf/start.hpp"

namespace plexus::perf {
namespace {

/// Coordinates through the communicator under test, between its timed operations.
class CommControl final : public Control {
 public:
  CommControl(ncclComm_t comm, int nranks)
      : comm_(comm), all_(kFoldMax * static_cast<size_t>(nranks)) {}

  Result<void> barrier() override {
    float token = 0;
    return check_call("ncclAllReduce",
                      ncclAllReduce(&token, &token, 1, ncclFloat32, ncclSum, comm_, nullptr));
  }
  Result<void> fold(std::span<double> values, Fold how) override {
    PLEXUS_TRY(check_call("ncclAllGather", ncclAllGather(values.data(), all_.data(), values.size(),
                                                         ncclFloat64, comm_, nullptr)));
    const size_t nranks = all_.size() / kFoldMax;
    for (size_t i = 0; i < values.size(); ++i) {
      double folded = all_[i];
      for (size_t rank = 1; rank < nranks; ++rank) {
        const double theirs = all_[rank * values.size() + i];
        folded = how == Fold::kMax ? std::max(folded, theirs) : folded + theirs;
      }
      values[i] = folded;
    }
    return ok();
  }

 private:
  ncclComm_t comm_;
  std::vector<double> all_;  // [nranks][values]
};

}  // namespace

Result<JoinInput> find_join_input(const Joined& flags) {
  if (!flags.rendezvous.empty()) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread exists yet
    setenv("NCCL_COMM_ID", flags.rendezvous.c_str(), 1);
  }
  JoinInput input{.rank = flags.rank, .nranks = flags.nranks, .id = {}, .name = {}};
  if (flags.rank >= 0) {
    PLEXUS_TRY(check_call("ncclGetUniqueId", ncclGetUniqueId(&input.id)));
    input.name = fmt::format("rank {}", input.rank);
    return input;
  }
  PLEXUS_TRY(check_call("plexusGetUniqueIdFromEnvironment",
                        plexusGetUniqueIdFromEnvironment(&input.id, &input.nranks, &input.rank)));
  PLEXUS_TRY(launched, find_launched_rank(read_launch_variable));
  input.name = fmt::format("rank {} ({})", input.rank, launched.value().job);
  return input;
}

Result<uint64_t> join_job(const PerfOptions& options, const JoinInput& input, Reporter* reporter) {
  ncclComm_t comm = nullptr;
  PLEXUS_TRY(
      check_call("ncclCommInitRank", ncclCommInitRank(&comm, input.nranks, input.id, input.rank)));
  PLEXUS_TRY(mine, Rank::create(comm, options, compute_largest_bytes(options)));
  std::vector<std::unique_ptr<Rank>> ranks;
  ranks.push_back(std::move(mine));
  RankSet set(std::move(ranks));
  CommControl control(comm, options.nranks);
  TakeRow print;
  if (reporter != nullptr) {
    print = [reporter](const Row& row) {
      reporter->add(row);
      return Result<void>(ok());
    };
  }
  return run_benchmark(options, set, control, print);
}

}  // namespace plexus::perf
