// SPDX-License-Identifier: Apache-2.0
// One rank that makes COUNT equal calls, for tests/bench/instructions: counts what the library
// executes for a small message, without timers, checks or tables around it.
#include <cstdio>
#include <cstdlib>
#include <nccl.h>
#include <string_view>
#include <vector>

namespace {

void check(ncclResult_t result) {
  if (result != ncclSuccess) {
    std::fprintf(stderr, "small_message: %s\n", ncclGetLastError(nullptr));
    std::exit(1);  // NOLINT(concurrency-mt-unsafe): one thread
  }
}

struct Call {
  bool exchanges;  // a group of one send and one receive; else an all-reduce
  const float* input;
  float* output;
  size_t elements;
  int peer;
  ncclComm_t comm;
};

void make(const Call& call) {
  if (!call.exchanges) {
    check(ncclAllReduce(call.input, call.output, call.elements, ncclFloat, ncclSum, call.comm,
                        nullptr));
    return;
  }
  check(ncclGroupStart());
  check(ncclSend(call.input, call.elements, ncclFloat, call.peer, call.comm, nullptr));
  check(ncclRecv(call.output, call.elements, ncclFloat, call.peer, call.comm, nullptr));
  check(ncclGroupEnd());
}

/// The counted function, found by its name: all calls but the first, which plans and connects.
[[gnu::noinline]] void make_all_calls(const Call& call, long count) {
  for (long done = 0; done < count; ++done) {
    make(call);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(
        stderr,
        "usage: NCCL_COMM_ID=HOST:PORT small_message all_reduce|sendrecv RANK NRANKS BYTES "
        "COUNT\n"
        "Sums, or exchanges with the rank's neighbour, BYTES/4 floats COUNT times; every "
        "rank must say the same. NRANKS is even.\n");
    return 2;
  }
  const bool exchanges = std::string_view(argv[1]) == "sendrecv";
  const int rank = std::atoi(argv[2]);
  const int nranks = std::atoi(argv[3]);
  const auto elements = static_cast<size_t>(std::atoll(argv[4])) / sizeof(float);
  const long count = std::atol(argv[5]);
  ncclUniqueId id;
  check(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, nranks, id, rank));
  const std::vector<float> input(elements, 1.0F);
  std::vector<float> output(elements);
  const Call call{exchanges, input.data(), output.data(), elements, rank ^ 1, comm};
  make(call);
  make_all_calls(call, count);
  check(ncclCommDestroy(comm));
  const float expected = exchanges ? 1.0F : static_cast<float>(nranks);
  const bool right = elements == 0 || output.back() == expected;
  std::fputs(right ? "" : "small_message: wrong result\n", stderr);
  return right ? 0 : 1;
}
