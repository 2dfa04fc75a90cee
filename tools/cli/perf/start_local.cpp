// SPDX-License-Identifier: Apache-2.0
// Ranks in one process: one thread per rank, or one thread for all.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "tools/cli/perf/benchmark.hpp"
#include "tools/cli/perf/start.hpp"

namespace plexus::perf {
namespace {

/// Counts the threads that are still running, and those that failed.
class Tally {
 public:
  explicit Tally(int running) : running_(running) {}
  void leave(bool failed) {
    const std::lock_guard lock(mutex_);
    --running_;
    nfailed_ += failed ? 1 : 0;
    changed_.notify_all();
  }
  /// Waits until all are done, or until one has failed and the others had `grace` to report their
  /// failure.
  bool wait_all_succeeded(std::chrono::milliseconds grace) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return running_ == 0 || nfailed_ > 0; });
    changed_.wait_for(lock, grace, [&] { return running_ == 0; });
    return nfailed_ == 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int running_;
  int nfailed_ = 0;
};

Result<uint64_t> run_rank(const PerfOptions& options,
                          const ncclUniqueId& id,
                          int rank,
                          Control& control,
                          const TakeRow& take_row) {
  ncclComm_t comm = nullptr;
  PLEXUS_TRY(check_call("ncclCommInitRank", ncclCommInitRank(&comm, options.nranks, id, rank)));
  PLEXUS_TRY(mine, Rank::create(comm, options, compute_largest_bytes(options)));
  std::vector<std::unique_ptr<Rank>> ranks;
  ranks.push_back(std::move(mine));
  RankSet set(std::move(ranks));
  return run_benchmark(options, set, control, take_row);
}

/// The error of the rank whose failure is not a consequence of another's.
Error find_cause(const SharedArea& area, int nranks) {
  std::optional<Error> cause;
  for (int rank = 0; rank < nranks; ++rank) {
    const auto failure = area.failure_of(rank);
    if (failure &&
        (!cause || (cause->code() == Code::kRemoteError && failure->code != Code::kRemoteError))) {
      cause = Error(failure->code, fmt::format("rank {}: {}", rank, failure->message), __FILE__,
                    __LINE__);
    }
  }
  return cause ? std::move(*cause)
               : fail(Code::kInternalError, "a rank failed without giving a reason");
}

}  // namespace

Result<uint64_t> start_threads(const PerfOptions& options, Reporter& reporter, bool* broken) {
  constexpr auto kGrace = std::chrono::milliseconds(300);
  PLEXUS_TRY(area, SharedArea::create(options.nranks));
  ncclUniqueId id;
  PLEXUS_TRY(check_call("ncclGetUniqueId", ncclGetUniqueId(&id)));
  Tally tally(options.nranks);
  std::atomic<uint64_t> wrong_total{0};
  const TakeRow print = [&reporter](const Row& row) {
    reporter.add(row);
    return Result<void>(ok());
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(options.nranks));
  for (int rank = 0; rank < options.nranks; ++rank) {
    threads.emplace_back([&, rank] {
      bind_rank(options, rank);
      const auto control = area.make_control(rank);
      const Result<uint64_t> wrong =
          run_rank(options, id, rank, *control, rank == 0 ? print : TakeRow());
      if (!wrong) {
        area.give_up(rank, wrong.error());
      } else if (rank == 0) {
        wrong_total = wrong.value();
      }
      tally.leave(!wrong);
    });
  }
  if (!tally.wait_all_succeeded(kGrace)) {
    *broken = true;
    for (std::thread& thread : threads) {
      thread.detach();
    }
    return find_cause(area, options.nranks);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return wrong_total.load();
}

Result<uint64_t> start_single(const PerfOptions& options, Reporter& reporter) {
  const auto nranks = static_cast<size_t>(options.nranks);
  std::vector<ncclComm_t> comms(nranks);
  PLEXUS_TRY(check_call("ncclCommInitAll", ncclCommInitAll(comms.data(), options.nranks, nullptr)));
  std::vector<std::unique_ptr<Rank>> ranks;
  for (ncclComm_t comm : comms) {
    PLEXUS_TRY(rank, Rank::create(comm, options, compute_largest_bytes(options)));
    ranks.push_back(std::move(rank));
  }
  RankSet set(std::move(ranks));
  AloneControl control;
  return run_benchmark(options, set, control, [&reporter](const Row& row) {
    reporter.add(row);
    return Result<void>(ok());
  });
}

}  // namespace plexus::perf
