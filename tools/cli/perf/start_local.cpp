// SPDX-License-Identifier: Apache-2.0
// The ranks of one process: in its threads, each with one rank or several.
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <utility>

#include <fmt/core.h>

#include "tools/cli/perf/start.hpp"

namespace plexus::perf {
namespace {

/// What the threads of a process have come to.
class Tally {
 public:
  explicit Tally(int running) : running_(running) {}
  void leave(std::optional<Error> error) {
    const std::lock_guard lock(mutex_);
    --running_;
    // The failure that is no consequence of another rank's counts.
    if (error && (!cause_ ||
                  (cause_->code() == Code::kRemoteError && error->code() != Code::kRemoteError))) {
      cause_ = std::move(error);
    }
    changed_.notify_all();
  }
  /// Waits until all are done, or until one has failed and the others had `grace` to report their
  /// failure. Returns the cause.
  std::optional<Error> wait_cause(std::chrono::milliseconds grace) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return running_ == 0 || cause_; });
    changed_.wait_for(lock, grace, [&] { return running_ == 0; });
    return cause_ ? std::optional(cause_->clone()) : std::nullopt;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int running_;
  std::optional<Error> cause_;
};

/// What one thread does.
Result<uint64_t> run_worker(const PerfOptions& options, const ProcessRanks& process, int thread) {
  const int nranks = compute_workers(options).ranks_per_thread;
  const int first = process.first_rank + thread * nranks;
  if (nranks == 1 || compute_workers(options).count() > 1) {
    bind_worker(options, first / nranks);
  }
  std::vector<ncclComm_t> comms(static_cast<size_t>(nranks));
  PLEXUS_TRY(check_call("ncclGroupStart", ncclGroupStart()));
  for (int i = 0; i < nranks; ++i) {
    PLEXUS_TRY(check_call(
        "ncclCommInitRank",
        ncclCommInitRank(&comms[static_cast<size_t>(i)], options.nranks, process.id, first + i)));
  }
  PLEXUS_TRY(check_call("ncclCommInitRank", ncclGroupEnd()));
  PLEXUS_TRY(set, RankSet::create(comms, options, compute_largest_bytes(options)));
  PLEXUS_TRY(control, process.make_control(thread, set));
  return run_benchmark(options, set, *control, thread == 0 ? process.take_row : TakeRow());
}

Result<uint64_t> run_worker_to_its_end(const PerfOptions& options,
                                       const ProcessRanks& process,
                                       int thread) {
  Result<uint64_t> wrong = run_worker(options, process, thread);
  if (!wrong && process.give_up) {
    process.give_up(thread, wrong.error());
  }
  return wrong;
}

struct ProcessRun {
  ProcessRun(PerfOptions options_run, ProcessRanks process_run, int nthreads)
      : options(std::move(options_run)), process(std::move(process_run)), tally(nthreads) {}
  const PerfOptions options;
  const ProcessRanks process;
  Tally tally;
  uint64_t wrong_total = 0;  // written by the first thread
};

}  // namespace

RankPlace make_place(int rank, int pid, int index) noexcept {
  RankPlace place = {.rank = rank, .pid = pid, .index = index, .host = {}};
  gethostname(place.host.data(), place.host.size() - 1);
  if (char* const dot = std::strchr(place.host.data(), '.')) {
    *dot = '\0';
  }
  return place;
}

Result<uint64_t> run_process(const PerfOptions& options,
                             const ProcessRanks& process,
                             bool* broken) {
  const int nthreads = compute_workers(options).threads;
  if (nthreads == 1) {
    return run_worker_to_its_end(options, process, 0);
  }
  constexpr auto kGrace = std::chrono::milliseconds(300);
  // owned by every thread: those that are left behind may outlive this function
  const auto run = std::make_shared<ProcessRun>(options, process, nthreads);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(nthreads));
  for (int thread = 0; thread < nthreads; ++thread) {
    threads.emplace_back([run, thread] {
      Result<uint64_t> wrong = run_worker_to_its_end(run->options, run->process, thread);
      if (wrong && thread == 0) {
        run->wrong_total = wrong.value();
      }
      const int rank =
          run->process.first_rank + thread * compute_workers(run->options).ranks_per_thread;
      run->tally.leave(
          wrong
              ? std::nullopt
              : std::optional(std::move(wrong.error()).with_context(fmt::format("rank {}", rank))));
    });
  }
  if (std::optional<Error> cause = run->tally.wait_cause(kGrace)) {
    *broken = true;
    for (std::thread& thread : threads) {
      thread.detach();
    }
    return std::move(*cause);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return run->wrong_total;
}

Result<uint64_t> start_here(const PerfOptions& options, const Hooks& hooks, bool* broken) {
  std::vector<RankPlace> places;
  places.reserve(static_cast<size_t>(options.nranks));
  for (int rank = 0; rank < options.nranks; ++rank) {
    places.push_back(make_place(rank, getpid(), rank));
  }
  hooks.begin(places);
  PLEXUS_TRY(made, SharedArea::create(compute_workers(options).count()));
  const auto area = std::make_shared<SharedArea>(std::move(made));  // owned by what uses it
  ProcessRanks process;
  PLEXUS_TRY(check_call("ncclGetUniqueId", ncclGetUniqueId(&process.id)));
  process.make_control = [area](int thread, const RankSet& /*ranks*/) {
    return Result<std::unique_ptr<Control>>(area->make_control(thread));
  };
  process.give_up = [area](int thread, const Error& error) { area->give_up(thread, error); };
  process.take_row = hooks.take_row;
  return run_process(options, process, broken);
}

}  // namespace plexus::perf
