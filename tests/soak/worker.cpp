// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/worker.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <memory>
#include <mutex>
#include <plexus.h>
#include <set>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tests/soak/busy_host.hpp"
#include "tests/soak/calls.hpp"
#include "tests/soak/container.hpp"
#include "tests/soak/progress.hpp"
#include "tests/soak/puts.hpp"
#include "tests/soak/recovery.hpp"
#include "tests/soak/saboteur.hpp"

namespace plexus::soak {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto kPollPause = microseconds(200);
constexpr auto kIdPollPause = milliseconds(2);
constexpr double kEndOfQueuedSeconds = 3;  // 1 s on a machine that is not busy

std::string id_path(const std::string& folder, size_t making) {
  return fmt::format("{}/id.{}", folder, making);
}

/// Ends the program of a thread in a job with a fault. The one exception of this folder: errors
/// come from any depth of the program, and all that is left to do is to end in order.
struct Stopped {};

void append(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0 || ::write(file, text.data(), text.size()) < 0) {
    std::perror(path.c_str());
  }
  close(file);
}

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    std::perror("pipe2");
  }
  return ends;
}

/// State shared by the threads of the process.
class Shared {
 public:
  Shared(const Job& job, int process, std::string folder)
      : job_(job),
        process_(process),
        folder_(std::move(folder)),
        progress_(map_progress(progress_path(folder_, process))),
        saboteur_(job, process, *progress_) {}

  [[nodiscard]] const Job& job() const { return job_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  ThreadProgress& progress(int thread) { return progress_->threads[static_cast<size_t>(thread)]; }
  [[nodiscard]] const ProcessProgress& page() const { return *progress_; }
  Saboteur& saboteur() { return saboteur_; }

  /// An error in a job with a fault: the launcher judges it.
  [[noreturn]] void stop(int thread, ncclResult_t code, const std::string& text) {
    ErrorReport& report = progress(thread).error;
    if (report.at_us.load() == 0) {
      report.step = progress(thread).step.load();
      report.code = static_cast<int32_t>(code);
      text.copy(report.text.data(), report.text.size() - 1);
      report.at_us.store(now_us());
    }
    throw Stopped();
  }

  /// Reports and never returns: the behaviour of the other threads is more informative than an
  /// exit.
  [[noreturn]] void fail(const std::string& text) {
    const auto now = std::chrono::duration_cast<milliseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    append(finding_path(folder_, process_),
           fmt::format("{:06} ms: {}\n", now.count() % 1'000'000, text));
    progress_->has_failed.store(1);
    for (;;) {
      pause();
    }
  }

  /// A child that does not use the library, like a data loader's worker.
  void fork_child(const Step& step) {
    const int read_end = ends_with_us_[0];
    const int write_end = ends_with_us_[1];
    const pid_t child = fork();
    if (child < 0) {
      fail(fmt::format("fork: {}", std::strerror(errno)));
    }
    if (child > 0) {
      append(children_path(folder_), fmt::format("{}\n", child));
      const std::lock_guard lock(mutex_);
      if (step.child == ChildLife::kShort) {
        children_.push_back(child);
      }
      return;
    }
    // Only async-signal-safe functions between fork and exec.
    close(write_end);
    char byte = 0;
    if (step.child != ChildLife::kShort && read(read_end, &byte, 1) < 0) {
      _exit(1);
    }
    if (step.child != ChildLife::kUntilParentEnds) {
      usleep(static_cast<useconds_t>(step.delay_us));
    }
    _exit(0);
  }

  /// The ids of a communicator have been used.
  void note_made(int making) {
    const std::lock_guard lock(mutex_);
    made_.insert(making);
  }
  /// Counts ids that this process has made. The first of several ids for one communicator is used.
  [[nodiscard]] int unused_ids() {
    const std::lock_guard lock(mutex_);
    int count = 0;
    for (size_t making = 0; making < job_.makings.size(); ++making) {
      const Making& of = job_.makings[making];
      if (of.parent < 0 && of.process_of_id == process_ && of.kind != MakingKind::kInitAll) {
        count += of.nids - static_cast<int>(made_.count(static_cast<int>(making)));
      }
    }
    return count;
  }

  void reap_children() {
    for (const pid_t child : children_) {
      waitpid(child, nullptr, 0);
    }
  }

 private:
  const Job& job_;
  int process_;
  std::string folder_;
  ProgressPage progress_;
  const std::array<int, 2> ends_with_us_ = make_pipe();  // children read; nothing is written
  Saboteur saboteur_;  // after all that is open until the process ends
  std::mutex mutex_;   // guards children_
  std::vector<pid_t> children_;
  std::set<int> made_;  // guarded by mutex_ as well
};

/// Empty: they are not there, and somebody has left, who may have been to make them.
std::vector<ncclUniqueId> wait_for_ids(const Shared& shared, size_t making, int nids) {
  std::vector<ncclUniqueId> ids(static_cast<size_t>(nids));
  const std::string path = id_path(shared.folder(), making);
  for (;;) {
    const bool all_run = shared.page().order.load() == Order::kRun;
    std::FILE* const file = std::fopen(path.c_str(), "rbe");
    if (file != nullptr) {
      const size_t nread = std::fread(ids.data(), sizeof(ncclUniqueId), ids.size(), file);
      std::fclose(file);
      if (nread == ids.size()) {
        return ids;
      }
    }
    if (!all_run) {
      return {};
    }
    std::this_thread::sleep_for(kIdPollPause);
  }
}

int first_thread_of(const Job& job, int process) {
  const auto at = std::find_if(job.threads.begin(), job.threads.end(),
                               [&](const Thread& thread) { return thread.process == process; });
  return static_cast<int>(at - job.threads.begin());
}

/// Publishes the ids that this process makes for all processes.
void publish_ids(Shared& shared, int process) {
  const auto& makings = shared.job().makings;
  for (size_t making = 0; making < makings.size(); ++making) {
    if (makings[making].parent >= 0 || makings[making].process_of_id != process ||
        makings[making].kind == MakingKind::kInitAll) {
      continue;
    }
    std::string bytes;
    for (int i = 0; i < makings[making].nids; ++i) {
      ncclUniqueId id{};
      const ncclResult_t made = ncclGetUniqueId(&id);
      if (made != ncclSuccess && shared.job().fault.has_value()) {
        shared.stop(first_thread_of(shared.job(), process), made, ncclGetLastError(nullptr));
      }
      if (made != ncclSuccess) {
        shared.fail(fmt::format("ncclGetUniqueId: {}", ncclGetLastError(nullptr)));
      }
      bytes.append(id.internal, sizeof(id.internal));
    }
    const std::string path = id_path(shared.folder(), making);
    append(path + ".part", bytes);
    if (std::rename((path + ".part").c_str(), path.c_str()) != 0) {
      shared.fail("rename of an id's file");
    }
  }
}

class Runner {
 public:
  Runner(Shared& shared, int index)
      : shared_(shared),
        job_(shared.job()),
        index_(index),
        thread_(job_.threads[static_cast<size_t>(index)]),
        progress_(shared.progress(index)) {}

  void run() {
    if (!job_.fault.has_value()) {
      return run_program();
    }
    try {
      run_program();
    } catch (const Stopped&) {
      abandon();
    }
    go_on();
    enter(Phase::kEnded);
  }

 private:
  struct Pending {
    std::unique_ptr<LiveCall> call;
    int stream;
  };

  void run_program() {
    streams_.resize(static_cast<size_t>(thread_.nstreams));
    for (cudaStream_t& stream : streams_) {
      check(plexusStreamCreate(&stream), "plexusStreamCreate");
    }
    for (size_t step = 0; step < thread_.steps.size(); ++step) {
      progress_.step.store(static_cast<int32_t>(step));
      enter(Phase::kBeforeCall);
      step_ = &thread_.steps[step];
      used_.clear();
      if (job_.processes[static_cast<size_t>(thread_.process)].closes_stdio) {
        print_as_programs_do();
      }
      if (job_.fault.has_value()) {
        meet_fault(static_cast<int>(step));
      }
      run_step();
      if (stops_after_step_) {
        shared_.saboteur().wait();
        throw Stopped();
      }
    }
    progress_.step.store(static_cast<int32_t>(thread_.steps.size()));
    for (size_t stream = 0; stream < streams_.size(); ++stream) {
      synchronize(static_cast<int>(stream));
    }
    for (const cudaStream_t stream : streams_) {
      check(plexusStreamDestroy(stream), "plexusStreamDestroy");
    }
    streams_.clear();
    enter(job_.fault.has_value() ? Phase::kWaiting : Phase::kEnded);
  }

  // ---- faults ----

  void meet_fault(int step) {
    Saboteur& saboteur = shared_.saboteur();
    saboteur.pause_if_slow();
    if (!saboteur.is_at(index_, step)) {
      return;
    }
    if (job_.fault->kind == FaultKind::kQueued) {
      saboteur.start();
      end_queued();
    }
    if (job_.fault->kind != FaultKind::kAbort || step_->calls.empty()) {
      return saboteur.start();
    }
    // This thread may not touch the communicator again.
    const Call& call = step_->calls[static_cast<size_t>(job_.fault->rank)];
    const int comm = job_.operations[static_cast<size_t>(call.operation)].comm;
    aborted_ = {comm, call.rank};
    saboteur.start([handle = comms_.at(*aborted_)] { (void)ncclCommAbort(handle); });
    if (!job_.fault->is_in_call) {
      saboteur.wait();
      throw Stopped();
    }
    stops_after_step_ = true;
  }

  /// Ends the calls of all communicators of this thread.
  [[noreturn]] void end_queued() {
    enter(Phase::kInCall);
    std::vector<ncclComm_t> comms;
    for (const auto& [place, comm] : std::exchange(comms_, {})) {
      comms.push_back(comm);
    }
    const double seconds = soak::end_queued(comms, job_.fault->revokes);
    if (seconds > kEndOfQueuedSeconds * time_factor()) {
      fail(fmt::format("{} communicators with calls on one stream ended after {:.1f} s",
                       comms.size(), seconds));
    }
    throw Stopped();
  }

  /// Ends what is under way; what it returns does not matter any more.
  void abandon() {
    if (stops_after_step_) {
      shared_.saboteur().wait();
    }
    if (is_group_open_) {
      (void)ncclGroupEnd();
    }
    if (aborted_.has_value()) {
      comms_.erase(*aborted_);
    }
    for (auto& [place, comm] : comms_) {
      if (comm != nullptr && !(place.first == 0 && recovers() && has_world_)) {
        (void)ncclCommAbort(std::exchange(comm, nullptr));
      }
    }
    std::erase_if(comms_, [](const auto& entry) { return entry.second == nullptr; });
    for (const cudaStream_t stream : streams_) {
      (void)plexusStreamSynchronize(stream);
      (void)plexusStreamDestroy(stream);
    }
    calls_.clear();
    pending_.clear();
  }

  [[nodiscard]] bool recovers() const { return job_.fault->recovery != Recovery::kNone; }

  /// Waits for the launcher's word and makes, with the other threads, a communicator of who is
  /// left.
  void go_on() {
    if (!recovers() || !has_world_) {
      return;
    }
    enter(Phase::kWaiting);
    while (shared_.page().order.load() < Order::kGoOn) {
      std::this_thread::sleep_for(kPollPause);
    }
    std::vector<ncclComm_t> worlds;
    for (const int rank : thread_.ranks) {
      worlds.push_back(comms_.at({0, rank}));
    }
    if (shared_.page().order.load() == Order::kGoOn) {
      enter(Phase::kInCall);
      const auto wrong =
          go_on_without_guilty({.job = job_, .folder = shared_.folder(), .ranks = thread_.ranks},
                               worlds, progress_.went_on_us);
      if (wrong.has_value()) {
        fail(*wrong);
      }
    }
    for (const ncclComm_t world : worlds) {
      (void)ncclCommAbort(world);
    }
  }

  ncclResult_t start_group() {
    is_group_open_ = true;
    return ncclGroupStart();
  }
  ncclResult_t end_group() {
    is_group_open_ = false;
    return ncclGroupEnd();
  }

  void enter(Phase phase) { progress_.phase.store(phase); }

  [[noreturn]] void fail(const std::string& what) {
    const size_t step = static_cast<size_t>(progress_.step.load());
    const std::string at = step < thread_.steps.size() ? describe(job_, thread_.steps[step])
                                                       : std::string("the end of the thread");
    shared_.fail(fmt::format("thread {} (world ranks {}) step {}: {}\n  {}", index_,
                             fmt::join(thread_.ranks, ","), step, what, at));
  }

  void check(ncclResult_t result, const char* what) {
    if (result != ncclSuccess) {
      const std::string text =
          fmt::format("{} returned {} ({}): {}", what, static_cast<int>(result),
                      ncclGetErrorString(result), error_text());
      if (job_.fault.has_value()) {
        shared_.stop(index_, result, text);
      }
      fail(text);
    }
  }

  /// Says why the first of the step's communicators failed that did. Else the last
  /// error of the process.
  const char* error_text() {
    for (const ncclComm_t comm : used_) {
      ncclResult_t state = ncclSuccess;
      if (ncclCommGetAsyncError(comm, &state) == ncclSuccess && state != ncclSuccess &&
          state != ncclInProgress) {
        return ncclGetLastError(comm);
      }
    }
    return ncclGetLastError(nullptr);
  }

  /// Waits for a call that a non-blocking communicator may have left in progress.
  void settle(ncclResult_t result, const std::vector<ncclComm_t>& comms, const char* what) {
    if (result != ncclInProgress) {
      return check(result, what);
    }
    if (!job_.is_nonblocking) {
      fail(fmt::format("{} returned ncclInProgress on a blocking communicator", what));
    }
    enter(Phase::kPolling);
    used_ = comms;
    for (const ncclComm_t comm : comms) {
      ncclResult_t state = ncclInProgress;
      while (state == ncclInProgress) {
        check(ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError");
        if (state == ncclInProgress) {
          std::this_thread::sleep_for(kPollPause);
        }
      }
      check(state, what);
    }
  }

  void run_step() {
    switch (step_->kind) {
      case StepKind::kCalls:
        return run_calls();
      case StepKind::kMake:
        return make_comms(job_.makings[static_cast<size_t>(step_->making)]);
      case StepKind::kSync:
        for (const int stream : step_->streams) {
          synchronize(stream);
        }
        return;
      case StepKind::kDestroy:
      case StepKind::kFinalize:
        return leave();
      case StepKind::kDelay:
        enter(Phase::kPausing);
        std::this_thread::sleep_for(microseconds(step_->delay_us));
        return;
      case StepKind::kFork:
        return shared_.fork_child(*step_);
    }
  }

  // ---- calls ----

  ncclComm_t comm_of(const Call& call) {
    const int comm = job_.operations[static_cast<size_t>(call.operation)].comm;
    return comms_.at({comm, call.rank});
  }

  void run_calls() {
    std::vector<std::unique_ptr<LiveCall>>& calls = calls_;
    calls.clear();
    std::vector<ncclComm_t> comms;
    for (const Call& call : step_->calls) {
      const auto stream =
          call.stream == kNoStream ? nullptr : streams_[static_cast<size_t>(call.stream)];
      comms.push_back(comm_of(call));
      calls.push_back(std::make_unique<LiveCall>(job_, call, comms.back(), stream));
      check(calls.back()->prepare(), "making the buffers and the reduction");
    }
    used_ = comms;
    enter(Phase::kInCall);
    if (step_->is_grouped) {
      issue_group(calls, comms);
    } else {
      settle(calls.front()->issue(), comms, "the call");
    }
    for (auto& call : calls) {
      check(call->release(), "ncclRedOpDestroy or ncclCommWindowDeregister");
      progress_.ncalls.fetch_add(1);
      if (call->call().stream == kNoStream) {
        verify(*call);
      } else {
        const int stream = call->call().stream;
        pending_.push_back({.call = std::move(call), .stream = stream});
      }
    }
  }

  /// Nobody knows what calls that differ between ranks do, but not beside the buffers.
  [[nodiscard]] bool is_undefined(int operation) const {
    return job_.fault.has_value() && job_.fault->operation >= 0 &&
           (operation == job_.fault->operation || operation == job_.fault->altered);
  }

  void issue_group(std::vector<std::unique_ptr<LiveCall>>& calls,
                   const std::vector<ncclComm_t>& comms) {
    check(start_group(), "ncclGroupStart");
    for (auto& call : calls) {
      const ncclResult_t result = call->issue();
      if (result != ncclInProgress) {
        check(result, "a call in the group");
      }
    }
    settle(end_group(), comms, "ncclGroupEnd");
  }

  void verify(const LiveCall& call) {
    const auto wrong =
        is_undefined(call.call().operation) ? call.find_wrong_guards() : call.find_wrong();
    progress_.nchecked.fetch_add(1);
    if (wrong.has_value()) {
      const Step alone{.calls = {call.call()}};
      fail(fmt::format("WRONG DATA: {}, in {}", *wrong, describe(job_, alone)));
    }
  }

  void synchronize(int stream) {
    enter(Phase::kInSync);
    const cudaStream_t handle = streams_[static_cast<size_t>(stream)];
    if ((progress_.ncalls.load() + static_cast<uint64_t>(stream)) % 3 == 0) {
      ncclResult_t state = ncclInProgress;
      while ((state = plexusStreamQuery(handle)) == ncclInProgress) {
        std::this_thread::sleep_for(kPollPause);
      }
      check(state, "plexusStreamQuery");
    } else {
      check(plexusStreamSynchronize(handle), "plexusStreamSynchronize");
    }
    std::erase_if(pending_, [&](const Pending& pending) {
      if (pending.stream == stream) {
        verify(*pending.call);
      }
      return pending.stream == stream;
    });
  }

  // ---- communicators ----

  void make_comms(const Making& making) {
    if (making.kind == MakingKind::kInitAll) {
      return init_all(making.comms.front());
    }
    std::vector<ncclUniqueId> ids;
    if (making.parent < 0) {
      ids = wait_for_ids(shared_, static_cast<size_t>(step_->making), making.nids);
      if (ids.empty()) {
        throw Stopped();
      }
    }
    enter(Phase::kInCall);
    std::vector<ncclComm_t> parents;
    std::vector<std::pair<int, int>> made;
    std::vector<ncclComm_t> unused(thread_.ranks.size());  // where the color is NOCOLOR
    const bool is_grouped = thread_.ranks.size() > 1;
    if (is_grouped) {
      check(start_group(), "ncclGroupStart");
    }
    ncclResult_t last = ncclSuccess;
    for (size_t at = 0; at < thread_.ranks.size(); ++at) {
      ncclComm_t* target = &unused[at];
      for (const int comm : making.comms) {
        const int rank = rank_in(job_.comms[static_cast<size_t>(comm)], thread_.ranks[at]);
        if (rank >= 0) {
          made.emplace_back(comm, rank);
          target = &comms_[made.back()];
        }
      }
      const ncclResult_t result = make_one(making, thread_.ranks[at], ids, target, parents);
      last = result == ncclInProgress ? result : last;
      if (result != ncclInProgress) {
        check(result, "making a communicator");
      }
    }
    last = is_grouped ? end_group() : last;
    settle(last, parents, "making a communicator (parent)");
    for (size_t at = 0; making.kind == MakingKind::kSuspend && at < parents.size(); ++at) {
      check(ncclCommResume(parents[at]), "ncclCommResume");
    }
    // After a fault a rank may have left without the signal that another one waits for.
    if (making.kind == MakingKind::kPuts && !job_.fault.has_value()) {
      const auto [result, what] = put_around(parents, job_.seed);
      check(result, what);
    }
    std::vector<ncclComm_t> children;
    children.reserve(made.size());
    for (const auto& place : made) {
      children.push_back(comms_.at(place));
    }
    settle(last, children, "making a communicator");
    shared_.note_made(step_->making);
    has_world_ = has_world_ || step_->making == 0;
  }

  void init_all(int comm) {
    enter(Phase::kInCall);
    std::vector<ncclComm_t> made(thread_.ranks.size());
    check(ncclCommInitAll(made.data(), static_cast<int>(made.size()), nullptr), "ncclCommInitAll");
    for (size_t rank = 0; rank < made.size(); ++rank) {
      comms_[{comm, static_cast<int>(rank)}] = made[rank];
    }
  }

  ncclResult_t make_one(const Making& making,
                        int world_rank,
                        std::vector<ncclUniqueId>& ids,
                        ncclComm_t* target,
                        std::vector<ncclComm_t>& parents) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = job_.is_nonblocking ? 0 : 1;
    if (making.parent < 0) {
      const Comm& comm = job_.comms[static_cast<size_t>(making.comms.front())];
      const int nranks = static_cast<int>(comm.members.size());
      const int rank = rank_in(comm, world_rank);
      if (rank < 0) {
        return ncclSuccess;
      }
      return making.kind == MakingKind::kScalable
                 ? ncclCommInitRankScalable(target, nranks, rank, making.nids, ids.data(), &config)
                 : ncclCommInitRankConfig(target, nranks, ids.front(), rank, &config);
    }
    const int rank = rank_in(job_.comms[static_cast<size_t>(making.parent)], world_rank);
    if (rank < 0) {
      return ncclSuccess;
    }
    const ncclComm_t parent = comms_.at({making.parent, rank});
    if (making.kind == MakingKind::kSuspend || making.kind == MakingKind::kPuts) {
      parents.push_back(parent);
      return making.kind == MakingKind::kPuts ? ncclSuccess
                                              : ncclCommSuspend(parent, NCCL_SUSPEND_MEM);
    }
    if (making.kind == MakingKind::kSplit) {
      parents.push_back(parent);
      return ncclCommSplit(parent, making.colors[static_cast<size_t>(rank)],
                           making.keys[static_cast<size_t>(rank)], target, &config);
    }
    std::vector<int> excluded = making.excluded;
    if (std::find(excluded.begin(), excluded.end(), rank) != excluded.end()) {
      return ncclSuccess;
    }
    parents.push_back(parent);
    return ncclCommShrink(parent, excluded.data(), static_cast<int>(excluded.size()), target,
                          &config, NCCL_SHRINK_DEFAULT);
  }

  void leave() {
    enter(Phase::kInCall);
    std::vector<ncclComm_t> leaving;
    for (const Place& place : step_->places) {
      leaving.push_back(comms_.at({place.comm, place.rank}));
    }
    const bool is_grouped = leaving.size() > 1;
    const bool is_finalized = step_->kind == StepKind::kFinalize;
    if (is_finalized) {
      used_ = leaving;
      for_all(leaving, ncclCommFinalize, is_grouped, "ncclCommFinalize");
      used_.clear();
    }
    for (const Place& place : step_->places) {
      comms_.erase({place.comm, place.rank});
    }
    for_all(leaving, ncclCommDestroy, is_grouped && !is_finalized, "ncclCommDestroy");
  }

  void for_all(const std::vector<ncclComm_t>& comms,
               ncclResult_t (*call)(ncclComm_t),
               bool is_grouped,
               const char* what) {
    // A destroyed communicator cannot be polled.
    const auto pollable = [&](ncclComm_t comm) {
      return call == ncclCommDestroy ? std::vector<ncclComm_t>{} : std::vector<ncclComm_t>{comm};
    };
    if (is_grouped) {
      check(start_group(), "ncclGroupStart");
    }
    ncclResult_t last = ncclSuccess;
    for (const ncclComm_t comm : comms) {
      const ncclResult_t result = call(comm);
      if (!is_grouped) {
        settle(result, pollable(comm), what);
      } else if (result != ncclInProgress) {
        check(result, what);
      } else {
        last = result;
      }
    }
    if (is_grouped) {
      const ncclResult_t ended = end_group();
      settle(ended == ncclSuccess ? last : ended,
             call == ncclCommDestroy ? std::vector<ncclComm_t>{} : comms, what);
    }
  }

  Shared& shared_;
  const Job& job_;
  const int index_;
  const Thread& thread_;
  ThreadProgress& progress_;
  const Step* step_ = nullptr;
  std::vector<ncclComm_t> used_;  // by the step
  bool has_world_ = false;        // the communicator of all was ready once
  bool is_group_open_ = false;
  bool stops_after_step_ = false;               // the fault's part of this thread is over then
  std::optional<std::pair<int, int>> aborted_;  // by the fault
  std::vector<cudaStream_t> streams_;
  std::map<std::pair<int, int>, ncclComm_t> comms_;  // by communicator and rank
  std::vector<std::unique_ptr<LiveCall>> calls_;     // of the step
  std::vector<Pending> pending_;
};

}  // namespace

std::string progress_path(const std::string& folder, int process) {
  return fmt::format("{}/progress.{}", folder, process);
}
std::string finding_path(const std::string& folder, int process) {
  return fmt::format("{}/finding.{}", folder, process);
}
std::string output_path(const std::string& folder, int process) {
  return fmt::format("{}/output.{}", folder, process);
}
std::string children_path(const std::string& folder) { return folder + "/children"; }

int run_process(const Job& job, int process, const std::string& folder) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const Process& own = job.processes[static_cast<size_t>(process)];
  const BusyHost busy(job.measures_rates);
  Shared shared(job, process, folder);  // with files that get other numbers than 0 to 2
  if (own.closes_stdio) {
    close_stdio();
  }
  shared.saboteur().strike_at_start();
  if (own.forks_first) {
    shared.fork_child({.kind = StepKind::kFork, .child = ChildLife::kUntilParentEnds});
  }
  try {
    publish_ids(shared, process);
  } catch (const Stopped&) {
    return 0;
  }
  std::vector<std::thread> threads;
  for (size_t index = 0; index < job.threads.size(); ++index) {
    if (job.threads[index].process == process) {
      threads.emplace_back([&shared, index] { Runner(shared, static_cast<int>(index)).run(); });
    }
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  shared.saboteur().wait();
  shared.reap_children();
  const std::string taken = own.closes_stdio ? find_in_place_of_stdio() : "";
  if (!taken.empty()) {
    shared.fail("descriptors 0 to 2 were closed, and now" + taken);
  }
  if (own.ending == Ending::kExits) {
    _exit(0);
  }
  if (own.ending == Ending::kReturns) {
    return 0;
  }
  shared.saboteur().count_leftovers(shared.unused_ids());
  return 0;
}

int run_fresh_process(const Job& job, const std::string& folder) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto process = static_cast<int>(job.processes.size());
  const ProgressPage page = map_progress(progress_path(folder, process));
  const auto wrong = join_as_fresh(job, folder, *page);
  if (wrong.has_value()) {
    append(finding_path(folder, process), fmt::format("0 ms: fresh process: {}\n", *wrong));
    page->has_failed.store(1);
    return 1;
  }
  return 0;
}

}  // namespace plexus::soak
