// SPDX-License-Identifier: Apache-2.0
// A job that goes on after deaths: a process that is no rank makes the unique id and is killed once
// all ranks have joined; then the ranks of VICTIMS kill themselves, and the others make a
// communicator of what is left and compute. With `grow` it then grows by fresh processes to as many
// ranks as before, by an id that a survivor makes. Sums are checked, and so is the time from the
// deaths to the first result of the survivors.
//
// In mode `known` they are not told the victims.
//   survivors NRANKS VICTIM[,VICTIM...] abort|default|revoke|known [grow]
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <plexus.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tests/support/process_shared.hpp"
#include "tests/support/require.hpp"

namespace {

using plexus::testing_process::ProcessBarrier;
using plexus::testing_require::bound_seconds;

constexpr size_t kCount = 100'000;
constexpr double kGoesOnSeconds = 2;

struct Shared {
  ncclUniqueId id;
  ncclUniqueId grow_id;
  ProcessBarrier has_id;       // ranks and the maker of the id
  ProcessBarrier has_joined;   // ranks and main
  ProcessBarrier may_die;      // ranks and main
  ProcessBarrier has_grow_id;  // the first survivor and the fresh processes
  std::atomic<int64_t> died_us{0};
  std::atomic<int64_t> went_on_us{0};
};

struct Options {
  int nranks = 0;
  std::vector<int> victims{};
  std::string mode{};
  bool grows = false;
  [[nodiscard]] bool is_victim(int rank) const {
    return std::find(victims.begin(), victims.end(), rank) != victims.end();
  }
};

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
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

/// The sum of 1, 2, ... `nranks`: each rank contributes its number plus one.
float sum_of_all(int nranks) { return static_cast<float>(nranks * (nranks + 1) / 2); }

/// Uses the communicator of all as grown: old ranks first, then fresh ones.
void use_grown(ncclComm_t grown, int nranks) {
  int rank = -1;
  REQUIRE(ncclCommUserRank(grown, &rank) == ncclSuccess);
  REQUIRE(sum(grown, static_cast<float>(rank + 1), sum_of_all(nranks)) == ncclSuccess);
  REQUIRE(ncclCommDestroy(grown) == ncclSuccess);
}

void grow(Shared& shared, ncclComm_t rest, int nranks) {
  int rank = -1;
  REQUIRE(ncclCommUserRank(rest, &rank) == ncclSuccess);
  if (rank == 0) {
    REQUIRE(ncclCommGetUniqueId(rest, &shared.grow_id) == ncclSuccess);
    shared.has_grow_id.wait();
  }
  ncclComm_t grown = nullptr;
  REQUIRE(ncclCommGrow(rest, nranks, nullptr, -1, &grown, nullptr) == ncclSuccess);
  use_grown(grown, nranks);
}

void run_fresh(Shared& shared, int rank, int nranks) {
  shared.has_grow_id.wait();
  ncclComm_t grown = nullptr;
  REQUIRE(ncclCommGrow(nullptr, nranks, &shared.grow_id, rank, &grown, nullptr) == ncclSuccess);
  use_grown(grown, nranks);
}

/// As make_rest, by those who are known to be gone, who may become more.
ncclComm_t make_rest_of_known(ncclComm_t comm, const Options& options) {
  std::vector<int> gone(static_cast<size_t>(options.nranks));
  ncclComm_t rest = nullptr;
  while (rest == nullptr) {
    int count = 0;
    REQUIRE(plexusCommGoneRanks(comm, gone.data(), &count) == ncclSuccess);
    REQUIRE(std::includes(options.victims.begin(), options.victims.end(), gone.begin(),
                          gone.begin() + count));
    if (count > 0) {
      (void)ncclCommShrink(comm, gone.data(), count, &rest, nullptr, NCCL_SHRINK_ABORT);
    }
  }
  return rest;
}

/// A communicator of those who are left.
ncclComm_t make_rest(ncclComm_t comm, const Options& options) {
  if (options.mode != "default") {  // the error that the deaths cause
    while (sum(comm, 1, static_cast<float>(options.nranks)) == ncclSuccess) {
    }
  }
  if (options.mode == "revoke") {
    REQUIRE(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT) == ncclSuccess);
    REQUIRE(sum(comm, 1, 1) == ncclInvalidUsage);
  }
  if (options.mode == "known") {
    return make_rest_of_known(comm, options);
  }
  std::vector<int> victims = options.victims;
  ncclComm_t rest = nullptr;
  REQUIRE(ncclCommShrink(comm, victims.data(), static_cast<int>(victims.size()), &rest, nullptr,
                         options.mode == "abort" ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT) ==
          ncclSuccess);
  return rest;
}

void run_rank(Shared& shared, int rank, const Options& options) {
  shared.has_id.wait();
  ncclComm_t comm = nullptr;
  REQUIRE(ncclCommInitRank(&comm, options.nranks, shared.id, rank) == ncclSuccess);
  const float all = sum_of_all(options.nranks);
  REQUIRE(sum(comm, static_cast<float>(rank + 1), all) == ncclSuccess);
  shared.has_joined.wait();
  shared.may_die.wait();
  if (options.is_victim(rank)) {
    shared.died_us = now_us();
    raise(SIGKILL);
  }
  const ncclComm_t rest = make_rest(comm, options);
  float left = all;
  for (const int victim : options.victims) {
    left -= static_cast<float>(victim + 1);
  }
  REQUIRE(sum(rest, static_cast<float>(rank + 1), left) == ncclSuccess);
  int64_t seen = shared.went_on_us.load();
  const int64_t now = now_us();
  while (seen < now && !shared.went_on_us.compare_exchange_weak(seen, now)) {
  }
  if (options.grows) {
    grow(shared, rest, options.nranks);
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

Options read_options(int argc, char** argv) {
  Options options{.nranks = std::atoi(argv[1]), .mode = argv[3], .grows = argc > 4};
  for (const char* at = argv[2]; *at != '\0';) {
    char* end = nullptr;
    options.victims.push_back(static_cast<int>(std::strtol(at, &end, 10)));
    at = *end == ',' ? end + 1 : end;
  }
  return options;
}

/// 0: all ended as they should, victims by SIGKILL.
int wait_for_all(const std::vector<pid_t>& ranks, const Options& options) {
  int failed = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    int status = 0;
    waitpid(ranks[rank], &status, 0);
    failed += options.is_victim(static_cast<int>(rank))
                  ? !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
                  : status != 0;
  }
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fputs("usage: survivors NRANKS VICTIM[,VICTIM...] abort|default|revoke|known [grow]\n",
               stderr);
    return 2;
  }
  const Options options = read_options(argc, argv);
  const auto nranks = static_cast<size_t>(options.nranks);
  const size_t nvictims = options.victims.size();
  auto& shared = plexus::testing_process::make_shared_object<Shared>();
  shared.has_id.open(nranks + 1);
  shared.has_joined.open(nranks + 1);
  shared.may_die.open(nranks + 1);
  shared.has_grow_id.open(nvictims + 1);
  const pid_t maker = start([&] {
    REQUIRE(ncclGetUniqueId(&shared.id) == ncclSuccess);
    shared.has_id.wait();
    pause();
  });
  std::vector<pid_t> processes;  // ranks, then fresh ones
  for (int rank = 0; rank < options.nranks; ++rank) {
    processes.push_back(start([&] { run_rank(shared, rank, options); }));
  }
  for (size_t fresh = 0; options.grows && fresh < nvictims; ++fresh) {
    const int rank = static_cast<int>(nranks - nvictims + fresh);
    processes.push_back(start([&] { run_fresh(shared, rank, options.nranks); }));
  }
  shared.has_joined.wait();
  kill(maker, SIGKILL);
  waitpid(maker, nullptr, 0);
  shared.may_die.wait();
  const int failed = wait_for_all(processes, options);
  const double seconds = static_cast<double>(shared.went_on_us - shared.died_us) / 1e6;
  std::printf("%d ranks, %zu died, the rest went on after %.3f s%s%s\n", options.nranks, nvictims,
              seconds, options.grows ? " and grew" : "", failed == 0 ? "" : ", and some did not");
  if (seconds > bound_seconds(kGoesOnSeconds)) {
    std::printf("that is more than %.1f s\n", bound_seconds(kGoesOnSeconds));
    return 1;
  }
  return failed == 0 ? 0 : 1;
}
