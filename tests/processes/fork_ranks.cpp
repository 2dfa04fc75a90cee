// SPDX-License-Identifier: Apache-2.0
// Two ranks, of which rank 1 is a child of rank 0, and what becomes of them when they fork further.
//
//   fork_ranks WHEN WHAT
//
// WHEN: before (any call of the library; rank 1 makes the unique id), after_id (rank 0 has made
// it), after_init (and has had a communicator before). WHAT: see kDeeds. Exit code 0: rank 0 saw
// what it should; the texts of errors go to stdout.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <nccl.h>
#include <plexus.h>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tests/support/require.hpp"

namespace {

using plexus::testing_require::bound_seconds;
using plexus::testing_require::require;

constexpr size_t kCount = 100'000;  // larger than a slot's line, so that all paths are used
constexpr int kWorkers = 2;

/// A pipe with a single writing process: reading from it waits until that process has ended.
class Life {
 public:
  Life() { REQUIRE(pipe2(ends_, O_CLOEXEC) == 0); }
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;
  void wait_in_child() {
    close(ends_[1]);
    char byte = 0;
    REQUIRE(read(ends_[0], &byte, 1) == 0);
  }
  void only_watch() { close(ends_[1]); }

 private:
  int ends_[2] = {-1, -1};
};

struct Rank {
  int rank = 0;
  ncclComm_t comm = nullptr;
  Life* life = nullptr;        // rank 0's
  const int* ready = nullptr;  // pipe on which rank 0 announces that it is ready for a death
};

ncclResult_t try_all_reduce(const Rank& me, std::vector<float>& data) {
  return ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, me.comm,
                       nullptr);
}

void all_reduce(const Rank& me) {
  std::vector<float> data(kCount, static_cast<float>(me.rank + 1));
  REQUIRE(try_all_reduce(me, data) == ncclSuccess);
  REQUIRE(std::all_of(data.begin(), data.end(), [](float value) { return value == 3; }));
}

/// Both ranks in this process.
void use_own_communicator() {
  ncclComm_t comms[2];
  float data[2] = {1, 2};
  REQUIRE(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(ncclAllReduce(&data[rank], &data[rank], 1, ncclFloat32, ncclSum, comms[rank],
                          nullptr) == ncclSuccess);
  }
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  REQUIRE(data[0] == 3 && data[1] == 3);
  for (const ncclComm_t comm : comms) {
    REQUIRE(ncclCommDestroy(comm) == ncclSuccess);
  }
}

template <class Body>
pid_t start(const Body& body) {
  std::fflush(stdout);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    alarm(static_cast<unsigned>(bound_seconds(60)));
    body();
    std::fflush(stdout);
    _exit(0);
  }
  return pid;
}

void expect_well(pid_t pid) {
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
}

// ---- calls of ranks on their working communicator ----

/// Rank 0 gets the error about rank 1's death.
void hear_of_death(const Rank& me) {
  char byte = 0;
  if (me.rank == 1) {
    REQUIRE(read(me.ready[0], &byte, 1) == 1);
    kill(getpid(), SIGKILL);
  }
  REQUIRE(write(me.ready[1], &byte, 1) == 1);
  const auto start = std::chrono::steady_clock::now();
  std::vector<float> data(kCount, 1);
  REQUIRE(try_all_reduce(me, data) == ncclRemoteError);
  REQUIRE(std::chrono::steady_clock::now() - start <
          std::chrono::duration<double>(bound_seconds(5)));
  std::printf("rank 0: %s\n", ncclGetLastError(nullptr));
  REQUIRE(ncclCommAbort(me.comm) == ncclSuccess);
}

void die_with_an_orphan(const Rank& me) {
  if (me.rank == 1) {
    start([&] { me.life->wait_in_child(); });
  }
  hear_of_death(me);
}

/// Children call functions on their parent's objects; afterwards the ranks continue.
void go_on_after(const Rank& me, void (*deed)(const Rank& me)) {
  expect_well(start([&] { deed(me); }));
  all_reduce(me);
  REQUIRE(ncclCommDestroy(me.comm) == ncclSuccess);
}
void child_destroys(const Rank& me) {
  go_on_after(me, [](const Rank& its) { REQUIRE(ncclCommDestroy(its.comm) == ncclSuccess); });
}
void child_aborts(const Rank& me) {
  go_on_after(me, [](const Rank& its) { REQUIRE(ncclCommAbort(its.comm) == ncclSuccess); });
}
void child_calls(const Rank& me) {
  go_on_after(me, [](const Rank& its) {
    std::vector<float> data(1);
    REQUIRE(try_all_reduce(its, data) == ncclInvalidUsage);
  });
}
void child_exits(const Rank& me) {
  go_on_after(me, [](const Rank& /*its*/) { std::exit(0); });
}
void child_makes(const Rank& me) {
  go_on_after(me, [](const Rank& /*its*/) { use_own_communicator(); });
}

/// Like a DataLoader's workers: they live while the ranks work, destroy, make again and leave.
void workers(const Rank& me) {
  Life life;
  std::vector<pid_t> pids;
  for (int worker = 0; worker < kWorkers; ++worker) {
    pids.push_back(start([&] {
      use_own_communicator();
      life.wait_in_child();
    }));
  }
  for (int round = 0; round < 5; ++round) {
    all_reduce(me);
  }
  Rank child = me;
  REQUIRE(ncclCommSplit(me.comm, 0, me.rank, &child.comm, nullptr) == ncclSuccess);
  REQUIRE(ncclCommDestroy(me.comm) == ncclSuccess);
  all_reduce(child);
  REQUIRE(ncclCommDestroy(child.comm) == ncclSuccess);
  life.only_watch();
  std::for_each(pids.begin(), pids.end(), expect_well);
}

/// Programs that a rank executes inherit none of its descriptors.
void close_on_exec(const Rank& me) {
  DIR* const folder = opendir("/proc/self/fd");
  REQUIRE(folder != nullptr);
  int count = 0;
  while (const dirent* const entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (fd > STDERR_FILENO) {
      require((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0, entry->d_name);
      ++count;
    }
  }
  closedir(folder);
  REQUIRE(count > 4);  // pipes, this folder, and some of the library's
  all_reduce(me);
  REQUIRE(ncclCommDestroy(me.comm) == ncclSuccess);
}

struct Deed {
  const char* name;
  void (*run)(const Rank& me);
  bool kills;  // rank 1
};
constexpr Deed kDeeds[] = {
    {"plain", hear_of_death, true},       {"orphan", die_with_an_orphan, true},
    {"destroy", child_destroys, false},   {"abort", child_aborts, false},
    {"call", child_calls, false},         {"exit", child_exits, false},
    {"make", child_makes, false},         {"workers", workers, false},
    {"descriptors", close_on_exec, false}};

int run(const std::string& when, const Deed& deed) {
  ncclUniqueId id{};
  int reported[2];
  int ready[2];
  REQUIRE(pipe2(reported, O_CLOEXEC) == 0 && pipe2(ready, O_CLOEXEC) == 0);
  const bool makes_here = when != "before";
  if (when == "after_init") {
    use_own_communicator();
  }
  if (makes_here) {
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  }
  Life life;
  const auto be = [&](int rank) {
    Rank me{.rank = rank, .life = &life, .ready = ready};
    if (!makes_here && rank == 1) {
      REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
      REQUIRE(write(reported[1], &id, sizeof id) == sizeof id);
    } else if (!makes_here) {
      REQUIRE(read(reported[0], &id, sizeof id) == sizeof id);
    }
    REQUIRE(ncclCommInitRank(&me.comm, 2, id, rank) == ncclSuccess);
    all_reduce(me);
    deed.run(me);
  };
  const pid_t other = start([&] { be(1); });
  alarm(static_cast<unsigned>(bound_seconds(60)));
  be(0);
  if (deed.kills) {
    REQUIRE(waitpid(other, nullptr, 0) == other);
  } else {
    expect_well(other);
  }
  std::printf("well\n");
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  for (const Deed& deed : kDeeds) {
    if (count == 3 && std::strcmp(arguments[2], deed.name) == 0) {
      return run(arguments[1], deed);
    }
  }
  std::fprintf(stderr, "usage: fork_ranks before|after_id|after_init WHAT\n");
  return 2;
}
