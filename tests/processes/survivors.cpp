// SPDX-License-Identifier: Apache-2.0
// A job that goes on after deaths: a process that is no rank makes the unique id and is killed once
// all ranks have joined; then the ranks of VICTIMS kill themselves, and the others shrink the
// communicator and compute with what is left. The survivors' sums are checked, and the time from
// the deaths to the first result is printed.
//
//   survivors NRANKS VICTIM[,VICTIM...] [abort|default]
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nccl.h>
#include <new>
#include <pthread.h>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr size_t kCount = 100'000;

struct Shared {
  ncclUniqueId id;
  pthread_barrier_t has_id;      // ranks and the maker of the id
  pthread_barrier_t has_joined;  // ranks and main
  pthread_barrier_t may_die;     // ranks and main
  std::atomic<int64_t> died_us{0};
  std::atomic<int64_t> went_on_us{0};
};

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void require(bool holds, const char* what) {
  if (!holds) {
    std::printf("process %d: not so: %s; last error: %s\n", getpid(), what,
                ncclGetLastError(nullptr));
    std::fflush(stdout);
    _exit(1);
  }
}
#define REQUIRE(condition) require((condition), #condition)

void make_barrier(pthread_barrier_t& barrier, size_t count) {
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&barrier, &attributes, static_cast<unsigned>(count));
}

ncclResult_t sum(ncclComm_t comm, float value, float expected) {
  std::vector<float> data(kCount, value);
  const ncclResult_t result =
      ncclAllReduce(data.data(), data.data(), kCount, ncclFloat32, ncclSum, comm, nullptr);
  if (result == ncclSuccess) {
    REQUIRE(std::all_of(data.begin(), data.end(), [&](float x) { return x == expected; }));
  }
  return result;
}

void run_rank(Shared& shared, int rank, int nranks, std::vector<int> victims, bool aborts) {
  pthread_barrier_wait(&shared.has_id);
  ncclComm_t comm = nullptr;
  REQUIRE(ncclCommInitRank(&comm, nranks, shared.id, rank) == ncclSuccess);
  const auto all = static_cast<float>(nranks * (nranks + 1) / 2);
  REQUIRE(sum(comm, static_cast<float>(rank + 1), all) == ncclSuccess);
  pthread_barrier_wait(&shared.has_joined);
  pthread_barrier_wait(&shared.may_die);
  if (std::find(victims.begin(), victims.end(), rank) != victims.end()) {
    shared.died_us = now_us();
    raise(SIGKILL);
  }
  if (aborts) {  // the error that the deaths cause; without it the calls below wait for nobody
    while (sum(comm, 1, static_cast<float>(nranks)) == ncclSuccess) {
    }
  }
  ncclComm_t rest = nullptr;
  REQUIRE(ncclCommShrink(comm, victims.data(), static_cast<int>(victims.size()), &rest, nullptr,
                         aborts ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT) == ncclSuccess);
  float left = all;
  for (const int victim : victims) {
    left -= static_cast<float>(victim + 1);
  }
  REQUIRE(sum(rest, static_cast<float>(rank + 1), left) == ncclSuccess);
  int64_t seen = shared.went_on_us.load();
  const int64_t now = now_us();
  while (seen < now && !shared.went_on_us.compare_exchange_weak(seen, now)) {
  }
  REQUIRE(ncclCommDestroy(rest) == ncclSuccess);
  REQUIRE(ncclCommAbort(comm) == ncclSuccess);
}

template <class Body>
pid_t start(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  return child;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: survivors NRANKS VICTIM[,VICTIM...] [abort|default]\n", stderr);
    return 2;
  }
  const int nranks = std::atoi(argv[1]);
  std::vector<int> victims;
  for (const char* at = argv[2]; *at != '\0';) {
    char* end = nullptr;
    victims.push_back(static_cast<int>(std::strtol(at, &end, 10)));
    at = *end == ',' ? end + 1 : end;
  }
  const bool aborts = argc < 4 || std::string(argv[3]) == "abort";
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& shared = *new (memory) Shared;
  make_barrier(shared.has_id, static_cast<size_t>(nranks) + 1);
  make_barrier(shared.has_joined, static_cast<size_t>(nranks) + 1);
  make_barrier(shared.may_die, static_cast<size_t>(nranks) + 1);
  const pid_t maker = start([&] {
    REQUIRE(ncclGetUniqueId(&shared.id) == ncclSuccess);
    pthread_barrier_wait(&shared.has_id);
    pause();
  });
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < nranks; ++rank) {
    ranks.push_back(start([&] { run_rank(shared, rank, nranks, victims, aborts); }));
  }
  pthread_barrier_wait(&shared.has_joined);
  kill(maker, SIGKILL);
  waitpid(maker, nullptr, 0);
  pthread_barrier_wait(&shared.may_die);
  int failed = 0;
  for (int rank = 0; rank < nranks; ++rank) {
    int status = 0;
    waitpid(ranks[static_cast<size_t>(rank)], &status, 0);
    const bool is_victim = std::find(victims.begin(), victims.end(), rank) != victims.end();
    failed += is_victim ? !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) : status != 0;
  }
  std::printf("%d ranks, %zu died, the rest went on after %.3f s%s\n", nranks, victims.size(),
              static_cast<double>(shared.went_on_us - shared.died_us) / 1e6,
              failed == 0 ? "" : ", and some did not");
  return failed == 0 ? 0 : 1;
}
