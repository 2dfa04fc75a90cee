// SPDX-License-Identifier: Apache-2.0
// Forked processes. The parent prints the rows that rank 0 sends through a pipe, and watches the
// ranks: if one fails or dies, it ends the job with an error that names it. Ranks die with their
// parent.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <fmt/core.h>

#include "tools/cli/perf/rank_process.hpp"
#include "tools/cli/perf/start.hpp"

namespace plexus::perf {
namespace {

using Clock = std::chrono::steady_clock;

std::string reason(int error) { return std::generic_category().message(error); }

/// A pipe for rows. A Row is smaller than PIPE_BUF, so one write is one row.
class RowPipe {
 public:
  static Result<RowPipe> create() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      return fail(Code::kSystemError, "cannot create a pipe: {}", reason(errno));
    }
    return RowPipe(ends[0], ends[1]);
  }
  RowPipe(RowPipe&& other) noexcept
      : read_(std::exchange(other.read_, -1)), write_(std::exchange(other.write_, -1)) {}
  RowPipe& operator=(RowPipe&&) = delete;
  ~RowPipe() {
    close_end(&read_);
    close_end(&write_);
  }

  void keep_read() noexcept { close_end(&write_); }
  void keep_write() noexcept { close_end(&read_); }

  [[nodiscard]] Result<void> send(const Row& row) const {
    if (write(write_, &row, sizeof row) != sizeof row) {
      return fail(Code::kSystemError, "cannot send a row to the parent process: {}", reason(errno));
    }
    return ok();
  }
  /// Waits up to `timeout` for rows and passes them to `take`. Sets `*closed` when rank 0 will send
  /// no more.
  template <class Take>
  void receive(std::chrono::milliseconds timeout, bool* closed, Take&& take) const {
    pollfd event = {.fd = *closed ? -1 : read_, .events = POLLIN, .revents = 0};
    auto wait = static_cast<int>(timeout.count());
    while (::poll(&event, 1, wait) > 0) {
      Row row;
      if (read(read_, &row, sizeof row) != sizeof row) {
        *closed = true;
        return;
      }
      take(row);
      wait = 0;
    }
  }
  static_assert(sizeof(Row) <= 4096);

 private:
  RowPipe(int read, int write) noexcept : read_(read), write_(write) {}
  static void close_end(int* fd) noexcept {
    if (*fd >= 0) {
      close(std::exchange(*fd, -1));
    }
  }
  int read_;
  int write_;
};

/// Runs the ranks of a forked process.
Result<uint64_t> run_child(const PerfOptions& options,
                           int child,
                           const std::shared_ptr<SharedArea>& area,
                           const RowPipe& pipe,
                           bool* broken) {
  const Workers workers = compute_workers(options);
  ProcessRanks process;
  process.first_rank = child * workers.ranks_per_process();
  const auto id_bytes = std::as_writable_bytes(std::span(process.id.internal));
  if (child == 0) {
    PLEXUS_TRY(check_call("ncclGetUniqueId", ncclGetUniqueId(&process.id)));
    area->put_id(id_bytes);
  } else {
    PLEXUS_TRY(area->wait_id(id_bytes));
  }
  const int first_worker = child * workers.threads;
  process.make_control = [=](int thread, const RankSet& /*ranks*/) {
    return Result<std::unique_ptr<Control>>(area->make_control(first_worker + thread));
  };
  process.give_up = [=](int thread, const Error& error) {
    area->give_up(first_worker + thread, error);
  };
  if (child == 0) {
    process.take_row = [&pipe](const Row& row) { return pipe.send(row); };
  }
  return run_process(options, process, broken);
}

class Parent {
 public:
  Parent(const PerfOptions& options, const Hooks& hooks, SharedArea& area, RowPipe& pipe)
      : options_(options), hooks_(hooks), area_(area), pipe_(pipe) {}

  void add(pid_t pid) { processes_.emplace_back(pid); }
  /// In a child: the other processes are its siblings, so it must not reap them.
  void forget() noexcept {
    for (RankProcess& process : processes_) {
      process.release();
    }
  }
  /// Waits until all ranks have succeeded or one has not.
  Result<uint64_t> watch();

 private:
  void look();
  [[nodiscard]] bool all_ended() const {
    return std::all_of(processes_.begin(), processes_.end(),
                       [](const auto& process) { return process.end(); });
  }
  [[nodiscard]] bool any_failed() const {
    return std::any_of(processes_.begin(), processes_.end(), [](const auto& process) {
      return process.end() && !process.end()->succeeded();
    });
  }
  Error find_cause() const;
  [[nodiscard]] int blame(int process) const;
  /// The failure of one of its workers, and that worker's first rank.
  [[nodiscard]] std::optional<SharedArea::Failure> failure_of(int process, int* rank) const;

  const PerfOptions& options_;
  const Hooks& hooks_;
  SharedArea& area_;
  RowPipe& pipe_;
  std::vector<RankProcess> processes_;
  uint64_t wrong_total_ = 0;
  bool pipe_closed_ = false;
  Clock::time_point last_row_ = Clock::now();
};

void Parent::look() {
  constexpr auto kPoll = std::chrono::milliseconds(20);
  pipe_.receive(kPoll, &pipe_closed_, [&](const Row& row) {
    wrong_total_ += row.wrong > 0 ? static_cast<uint64_t>(row.wrong) : 0;
    (void)hooks_.take_row(row);  // of the reporter, which keeps its own failure
    last_row_ = Clock::now();
  });
  for (RankProcess& process : processes_) {
    process.poll();
  }
}

Result<uint64_t> Parent::watch() {
  while (!all_ended() && !any_failed()) {
    look();
    if (options_.timeout_s != 0 &&
        Clock::now() - last_row_ > std::chrono::seconds(options_.timeout_s)) {
      return fail(Code::kTimeout,
                  "no row was finished within {} s (--timeout); the ranks were killed",
                  options_.timeout_s);
    }
  }
  if (!any_failed()) {
    look();  // rows that arrived just before the end
    return wrong_total_;
  }
  // Ranks that fail because of another's failure may be seen first: wait for the cause.
  constexpr auto kGrace = std::chrono::milliseconds(300);
  for (const auto failed = Clock::now(); !all_ended() && Clock::now() - failed < kGrace;) {
    look();
  }
  return find_cause();
}

std::optional<SharedArea::Failure> Parent::failure_of(int process, int* rank) const {
  const Workers workers = compute_workers(options_);
  std::optional<SharedArea::Failure> failure;
  for (int i = 0; i < workers.threads; ++i) {
    const int worker = process * workers.threads + i;
    const auto theirs = area_.failure_of(worker);
    if (theirs && (!failure || failure->code == Code::kRemoteError)) {
      failure = theirs;
      *rank = worker * workers.ranks_per_thread;
    }
  }
  return failure;
}

/// Larger for processes whose failure is more likely the cause than a consequence.
int Parent::blame(int process) const {
  const auto& end = processes_[static_cast<size_t>(process)].end();
  if (!end || end->succeeded()) {
    return 0;
  }
  if (end->signal != 0) {
    return 3;
  }
  int rank = 0;
  const auto failure = failure_of(process, &rank);
  return failure && failure->code == Code::kRemoteError ? 1 : 2;
}

Error Parent::find_cause() const {
  int worst = 0;
  for (int process = 1; process < compute_workers(options_).processes; ++process) {
    worst = blame(process) > blame(worst) ? process : worst;
  }
  const auto& end = processes_[static_cast<size_t>(worst)].end();
  int rank = worst * compute_workers(options_).ranks_per_process();
  const auto failure = failure_of(worst, &rank);
  return fail(failure ? failure->code : Code::kRemoteError,
              "rank {} {}; the other ranks were killed", rank,
              failure ? fmt::format("failed: {}", failure->message) : describe(*end));
}

}  // namespace

Result<std::optional<uint64_t>> start_procs(const PerfOptions& options,
                                            const Hooks& hooks,
                                            ChildResult* child) {
  const Workers workers = compute_workers(options);
  PLEXUS_TRY(made, SharedArea::create(workers.count()));
  const auto area = std::make_shared<SharedArea>(std::move(made));  // owned by what uses it
  PLEXUS_TRY(pipe, RowPipe::create());
  Parent parent(options, hooks, *area, pipe);
  std::vector<RankPlace> places;
  const pid_t parent_pid = getpid();
  std::fflush(nullptr);  // otherwise each child would print the buffered output
  for (int process = 0; process < workers.processes; ++process) {
    const int first_rank = process * workers.ranks_per_process();
    const pid_t pid = fork();
    if (pid < 0) {
      return fail(Code::kSystemError,
                  "cannot start the process of rank {}: {}; use fewer ranks or --mode threads",
                  first_rank, reason(errno));
    }
    if (pid > 0) {
      parent.add(pid);
      for (int i = 0; i < workers.ranks_per_process(); ++i) {
        places.push_back(make_place(first_rank + i, pid, first_rank + i));
      }
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent_pid) {
      return std::optional<uint64_t>();  // the parent died before prctl
    }
    parent.forget();
    pipe.keep_write();
    prctl(PR_SET_NAME, fmt::format("plexus rank {}", first_rank).c_str());
    const Result<uint64_t> result = run_child(options, process, area, pipe, &child->broken);
    child->succeeded = result.has_value();
    if (!result) {
      area->give_up(process * workers.threads, result.error());
    }
    return std::optional<uint64_t>();
  }
  pipe.keep_read();
  hooks.begin(places);
  PLEXUS_TRY(wrong_total, parent.watch());
  return std::optional(wrong_total);
}

}  // namespace plexus::perf
