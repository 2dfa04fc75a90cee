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
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tests/soak/calls.hpp"
#include "tests/soak/progress.hpp"

namespace plexus::soak {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto kPollPause = microseconds(200);
constexpr auto kIdPollPause = milliseconds(2);

std::string id_path(const std::string& folder, size_t making) {
  return fmt::format("{}/id.{}", folder, making);
}

void append(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0 || ::write(file, text.data(), text.size()) < 0) {
    std::perror(path.c_str());
  }
  close(file);
}

/// State shared by the threads of the process.
class Shared {
 public:
  Shared(const Job& job, int process, std::string folder)
      : job_(job),
        process_(process),
        folder_(std::move(folder)),
        progress_(map_progress(progress_path(folder_, process))) {
    if (pipe2(ends_with_us_.data(), O_CLOEXEC) != 0) {
      std::perror("pipe2");
    }
  }

  [[nodiscard]] const Job& job() const { return job_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  ThreadProgress& progress(int thread) { return progress_->threads[static_cast<size_t>(thread)]; }

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
  std::array<int, 2> ends_with_us_{-1, -1};  // children read; nothing is written
  std::mutex mutex_;                         // guards children_
  std::vector<pid_t> children_;
};

std::vector<ncclUniqueId> wait_for_ids(const std::string& folder, size_t making, int nids) {
  std::vector<ncclUniqueId> ids(static_cast<size_t>(nids));
  const std::string path = id_path(folder, making);
  for (;;) {
    std::FILE* const file = std::fopen(path.c_str(), "rbe");
    if (file != nullptr) {
      const size_t nread = std::fread(ids.data(), sizeof(ncclUniqueId), ids.size(), file);
      std::fclose(file);
      if (nread == ids.size()) {
        return ids;
      }
    }
    std::this_thread::sleep_for(kIdPollPause);
  }
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
      if (ncclGetUniqueId(&id) != ncclSuccess) {
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
    streams_.resize(static_cast<size_t>(thread_.nstreams));
    for (cudaStream_t& stream : streams_) {
      check(plexusStreamCreate(&stream), "plexusStreamCreate");
    }
    for (size_t step = 0; step < thread_.steps.size(); ++step) {
      progress_.step.store(static_cast<int32_t>(step));
      enter(Phase::kBeforeCall);
      step_ = &thread_.steps[step];
      run_step();
    }
    progress_.step.store(static_cast<int32_t>(thread_.steps.size()));
    for (size_t stream = 0; stream < streams_.size(); ++stream) {
      synchronize(static_cast<int>(stream));
    }
    for (const cudaStream_t stream : streams_) {
      check(plexusStreamDestroy(stream), "plexusStreamDestroy");
    }
    enter(Phase::kEnded);
  }

 private:
  struct Pending {
    std::unique_ptr<LiveCall> call;
    int stream;
  };

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
      const char* const text = ncclGetLastError(nullptr);
      fail(fmt::format("{} returned {} ({}): {}", what, static_cast<int>(result),
                       ncclGetErrorString(result), text));
    }
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
    std::vector<std::unique_ptr<LiveCall>> calls;
    std::vector<ncclComm_t> comms;
    for (const Call& call : step_->calls) {
      const auto stream =
          call.stream == kNoStream ? nullptr : streams_[static_cast<size_t>(call.stream)];
      comms.push_back(comm_of(call));
      calls.push_back(std::make_unique<LiveCall>(job_, call, comms.back(), stream));
      check(calls.back()->prepare(), "making the buffers and the reduction");
    }
    enter(Phase::kInCall);
    if (step_->is_grouped) {
      issue_group(calls, comms);
    } else {
      settle(calls.front()->issue(), comms, "the call");
    }
    for (auto& call : calls) {
      check(call->release(), "ncclRedOpDestroy");
      progress_.ncalls.fetch_add(1);
      if (call->call().stream == kNoStream) {
        verify(*call);
      } else {
        const int stream = call->call().stream;
        pending_.push_back({.call = std::move(call), .stream = stream});
      }
    }
  }

  void issue_group(std::vector<std::unique_ptr<LiveCall>>& calls,
                   const std::vector<ncclComm_t>& comms) {
    check(ncclGroupStart(), "ncclGroupStart");
    for (auto& call : calls) {
      const ncclResult_t result = call->issue();
      if (result != ncclInProgress) {
        check(result, "a call in the group");
      }
    }
    settle(ncclGroupEnd(), comms, "ncclGroupEnd");
  }

  void verify(const LiveCall& call) {
    const auto wrong = call.find_wrong();
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
      ids = wait_for_ids(shared_.folder(), static_cast<size_t>(step_->making), making.nids);
    }
    enter(Phase::kInCall);
    std::vector<ncclComm_t> parents;
    std::map<std::pair<int, int>, ncclComm_t> made;
    std::vector<ncclComm_t> unused(thread_.ranks.size());  // where the color is NOCOLOR
    const bool is_grouped = thread_.ranks.size() > 1;
    if (is_grouped) {
      check(ncclGroupStart(), "ncclGroupStart");
    }
    ncclResult_t last = ncclSuccess;
    for (size_t at = 0; at < thread_.ranks.size(); ++at) {
      ncclComm_t* target = &unused[at];
      for (const int comm : making.comms) {
        const int rank = rank_in(job_.comms[static_cast<size_t>(comm)], thread_.ranks[at]);
        target = rank < 0 ? target : &made[{comm, rank}];
      }
      const ncclResult_t result = make_one(making, thread_.ranks[at], ids, target, parents);
      last = result == ncclInProgress ? result : last;
      if (result != ncclInProgress) {
        check(result, "making a communicator");
      }
    }
    last = is_grouped ? ncclGroupEnd() : last;
    settle(last, parents, "making a communicator (parent)");
    std::vector<ncclComm_t> children;
    for (const auto& [place, comm] : made) {
      children.push_back(comm);
    }
    settle(last, children, "making a communicator");
    comms_.merge(made);
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
      comms_.erase({place.comm, place.rank});
    }
    const bool is_grouped = leaving.size() > 1;
    if (step_->kind == StepKind::kFinalize) {
      for_all(leaving, ncclCommFinalize, is_grouped, "ncclCommFinalize");
      for_all(leaving, ncclCommDestroy, false, "ncclCommDestroy");
    } else {
      for_all(leaving, ncclCommDestroy, is_grouped, "ncclCommDestroy");
    }
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
      check(ncclGroupStart(), "ncclGroupStart");
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
      const ncclResult_t ended = ncclGroupEnd();
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
  std::vector<cudaStream_t> streams_;
  std::map<std::pair<int, int>, ncclComm_t> comms_;  // by communicator and rank
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
  Shared shared(job, process, folder);
  if (job.processes[static_cast<size_t>(process)].forks_first) {
    shared.fork_child({.kind = StepKind::kFork, .child = ChildLife::kUntilParentEnds});
  }
  publish_ids(shared, process);
  std::vector<std::thread> threads;
  for (size_t index = 0; index < job.threads.size(); ++index) {
    if (job.threads[index].process == process) {
      threads.emplace_back([&shared, index] { Runner(shared, static_cast<int>(index)).run(); });
    }
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  shared.reap_children();
  return 0;
}

}  // namespace plexus::soak
