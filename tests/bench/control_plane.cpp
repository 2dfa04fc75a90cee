// SPDX-License-Identifier: Apache-2.0
// What making a communicator of many ranks costs: processes with several ranks each, every process
// a host of its own (NCCL_HOSTID). One line: time from the common start until the last rank has its
// communicator, the largest resident memory and the most file descriptors of a process, and the
// time of ncclCommSplit into halves, of ncclCommShrink by the ranks of the last process, of
// ncclCommGrow by as many, and of ncclCommDestroy.
//
//   bench_control_plane PROCESSES RANKS_PER_PROCESS
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <nccl.h>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/core.h>

#include "tests/support/process_shared.hpp"

namespace {

using plexus::testing_process::ProcessBarrier;
using Clock = std::chrono::steady_clock;

struct Shared {
  ncclUniqueId id;
  ncclUniqueId grow_id;
  ProcessBarrier id_is_there;  // processes
  ProcessBarrier all;          // ranks
  std::atomic<int64_t> init_us{0};
  std::atomic<int64_t> split_us{0};
  std::atomic<int64_t> shrink_us{0};
  std::atomic<int64_t> grow_us{0};
  std::atomic<int64_t> destroy_us{0};
  std::atomic<int64_t> rss_kib{0};
  std::atomic<int64_t> descriptors{0};
};

void raise(std::atomic<int64_t>& most, int64_t value) {
  int64_t seen = most.load();
  while (seen < value && !most.compare_exchange_weak(seen, value)) {
  }
}

int64_t since_us(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
}

void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) {
    fmt::print(stderr, "{}: {}\n", what, ncclGetLastError(nullptr));
    std::_Exit(1);
  }
}

/// The first `nleft` ranks stay; the others join them anew.
void shrink_and_grow(Shared& shared, ncclComm_t comm, int rank, int nranks, int nleft) {
  std::vector<int> excluded;
  for (int other = nleft; other < nranks; ++other) {
    excluded.push_back(other);
  }
  const bool stays = rank < nleft;
  ncclComm_t smaller = nullptr;
  auto start = Clock::now();
  if (stays) {
    check(ncclCommShrink(comm, excluded.data(), nranks - nleft, &smaller, nullptr,
                         NCCL_SHRINK_DEFAULT),
          "ncclCommShrink");
    raise(shared.shrink_us, since_us(start));
  }
  if (rank == 0) {
    check(ncclCommGetUniqueId(smaller, &shared.grow_id), "ncclCommGetUniqueId");
  }
  shared.all.wait();
  start = Clock::now();
  ncclComm_t grown = nullptr;
  check(ncclCommGrow(smaller, nranks, stays ? nullptr : &shared.grow_id, stays ? -1 : rank, &grown,
                     nullptr),
        "ncclCommGrow");
  raise(shared.grow_us, since_us(start));
  shared.all.wait();
  check(ncclCommDestroy(smaller), "ncclCommDestroy");
  check(ncclCommDestroy(grown), "ncclCommDestroy");
}

void run_rank(Shared& shared, int rank, int nranks, int nleft) {
  shared.all.wait();
  auto start = Clock::now();
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, nranks, shared.id, rank), "ncclCommInitRank");
  raise(shared.init_us, since_us(start));
  shared.all.wait();
  raise(shared.descriptors, std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                          std::filesystem::directory_iterator()));
  start = Clock::now();
  ncclComm_t half = nullptr;
  check(ncclCommSplit(comm, rank % 2, rank, &half, nullptr), "ncclCommSplit");
  raise(shared.split_us, since_us(start));
  shared.all.wait();
  if (nleft > 0) {
    shrink_and_grow(shared, comm, rank, nranks, nleft);
  }
  shared.all.wait();
  start = Clock::now();
  check(ncclCommDestroy(half), "ncclCommDestroy");
  check(ncclCommDestroy(comm), "ncclCommDestroy");
  raise(shared.destroy_us, since_us(start));
}

void run_process(Shared& shared, int process, int nprocesses, int ranks_per_process) {
  setenv("NCCL_HOSTID", fmt::format("host{}", process).c_str(), 1);
  if (process == 0) {
    check(ncclGetUniqueId(&shared.id), "ncclGetUniqueId");
  }
  shared.id_is_there.wait();
  std::vector<std::thread> ranks;
  for (int i = 0; i < ranks_per_process; ++i) {
    ranks.emplace_back([&, rank = process * ranks_per_process + i] {
      run_rank(shared, rank, nprocesses * ranks_per_process, (nprocesses - 1) * ranks_per_process);
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  raise(shared.rss_kib, usage.ru_maxrss);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: bench_control_plane PROCESSES RANKS_PER_PROCESS\n");
    return 2;
  }
  const int nprocesses = std::atoi(argv[1]);
  const int ranks_per_process = std::atoi(argv[2]);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  auto& shared = plexus::testing_process::make_shared_object<Shared>();
  shared.id_is_there.open(static_cast<size_t>(nprocesses));
  shared.all.open(static_cast<size_t>(nprocesses) * static_cast<size_t>(ranks_per_process));
  std::vector<pid_t> children;
  for (int process = 0; process < nprocesses; ++process) {
    const pid_t child = fork();
    if (child == 0) {
      run_process(shared, process, nprocesses, ranks_per_process);
      std::exit(0);
    }
    children.push_back(child);
  }
  for (size_t ended = 0; ended < children.size(); ++ended) {
    int status = 0;
    wait(&status);
    if (status != 0) {  // the others may wait for it
      for (const pid_t child : children) {
        kill(child, SIGKILL);
      }
      return 1;
    }
  }
  fmt::print(
      "{:>7} ranks {:>4} processes: init {:.3f} s, split {:.3f} s, shrink {:.3f} s, grow {:.3f} s, "
      "destroy {:.3f} s, resident {:.1f} MiB, {} descriptors\n",
      nprocesses * ranks_per_process, nprocesses, static_cast<double>(shared.init_us) / 1e6,
      static_cast<double>(shared.split_us) / 1e6, static_cast<double>(shared.shrink_us) / 1e6,
      static_cast<double>(shared.grow_us) / 1e6, static_cast<double>(shared.destroy_us) / 1e6,
      static_cast<double>(shared.rss_kib) / 1024, shared.descriptors.load());
  return 0;
}
