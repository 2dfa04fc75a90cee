// SPDX-License-Identifier: Apache-2.0
// One rank that makes COUNT equal calls of ncclAllReduce, for tests/bench/instructions: what the
// library itself executes for a small message, without timers, checks or tables around it.
#include <cstdio>
#include <cstdlib>
#include <nccl.h>
#include <vector>

namespace {

void check(ncclResult_t result) {
  if (result != ncclSuccess) {
    std::fprintf(stderr, "small_message: %s\n", ncclGetLastError(nullptr));
    std::exit(1);  // NOLINT(concurrency-mt-unsafe): one thread
  }
}

/// What is counted, found by its name: all calls but the first, which plans and connects.
[[gnu::noinline]] void repeat_call(
    const float* input, float* output, size_t elements, ncclComm_t comm, long count) {
  for (long call = 0; call < count; ++call) {
    check(ncclAllReduce(input, output, elements, ncclFloat, ncclSum, comm, nullptr));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr,
                 "usage: NCCL_COMM_ID=HOST:PORT small_message RANK NRANKS BYTES COUNT\n"
                 "Sums BYTES/4 floats COUNT times; every rank must say the same.\n");
    return 2;
  }
  const int rank = std::atoi(argv[1]);
  const int nranks = std::atoi(argv[2]);
  const auto elements = static_cast<size_t>(std::atoll(argv[3])) / sizeof(float);
  const long count = std::atol(argv[4]);
  ncclUniqueId id;
  check(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, nranks, id, rank));
  const std::vector<float> input(elements, 1.0F);
  std::vector<float> output(elements);
  check(ncclAllReduce(input.data(), output.data(), elements, ncclFloat, ncclSum, comm, nullptr));
  repeat_call(input.data(), output.data(), elements, comm, count);
  check(ncclCommDestroy(comm));
  const bool right = elements == 0 || output.back() == static_cast<float>(nranks);
  std::fputs(right ? "" : "small_message: wrong result\n", stderr);
  return right ? 0 : 1;
}
