// SPDX-License-Identifier: Apache-2.0
// What a call costs that waits on an asynchronous stream behind others: each of 4 processes queues
// N ncclReduce of 8 bytes, and then waits for all of them. Prints us a call of rank 0 for N from 10
// to MOST (default 8,000), three passes each.
//
//   bench_queued_calls [MOST]
#include <array>
#include <chrono>
#include <cstdlib>
#include <nccl.h>
#include <plexus.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/core.h>

#include "tests/bench/must.hpp"
#include "tests/support/process_shared.hpp"

namespace {

constexpr int kRanks = 4;
constexpr int kPasses = 3;

struct Shared {
  ncclUniqueId id;
  plexus::testing_process::ProcessBarrier all;
};

void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) {
    plexus::die(fmt::format("{}: {}", what, ncclGetLastError(nullptr)));
  }
}

/// Microseconds a call.
double time_calls(ncclComm_t comm, cudaStream_t stream, int calls) {
  const std::array<float, 2> in = {1, 2};
  std::array<float, 2> out{};
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) {
    check(ncclReduce(in.data(), out.data(), in.size(), ncclFloat32, ncclSum, 0, comm, stream),
          "ncclReduce");
  }
  check(plexusStreamSynchronize(stream), "plexusStreamSynchronize");
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  return time.count() / calls;
}

void run_rank(int rank, int most, Shared& shared) {
  if (rank == 0) {
    check(ncclGetUniqueId(&shared.id), "ncclGetUniqueId");
  }
  shared.all.wait();
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  check(ncclCommInitRank(&comm, kRanks, shared.id, rank), "ncclCommInitRank");
  check(plexusStreamCreate(&stream), "plexusStreamCreate");
  for (int calls = 10; calls <= most; calls *= calls == 10 ? 50 : 4) {
    for (int pass = 0; pass < kPasses; ++pass) {
      shared.all.wait();
      const double us = time_calls(comm, stream, calls);
      if (rank == 0) {
        fmt::print("{:>8} queued {:>10.2f} us a call\n", calls, us);
      }
    }
  }
  check(ncclCommDestroy(comm), "ncclCommDestroy");
  check(plexusStreamDestroy(stream), "plexusStreamDestroy");
}

}  // namespace

int main(int argc, char** argv) {
  const int most = argc > 1 ? std::atoi(argv[1]) : 8000;  // NOLINT(cert-err34-c): a benchmark
  auto& shared = plexus::testing_process::make_shared_object<Shared>();
  shared.all.open(kRanks);
  for (int rank = 1; rank < kRanks; ++rank) {
    if (fork() == 0) {
      run_rank(rank, most, shared);
      return 0;
    }
  }
  run_rank(0, most, shared);
  while (wait(nullptr) > 0) {
  }
}
