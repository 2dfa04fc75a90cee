// SPDX-License-Identifier: Apache-2.0
// Programs with one mistake each, and the same without it, for PLEXUS_CHECK=1 (uses_test.py).
// Usage: cudart_uses CASE wrong|right    started once for each of two ranks
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <functional>
#include <map>
#include <nccl.h>
#include <plexus.h>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kCount = 1024;
constexpr size_t kBytes = kCount * sizeof(float);

void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) {
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
  }
}
/// A rank that goes on as programs do that look at no result, so that the other one is not alone.
void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess && result != ncclInProgress) {
    std::fprintf(stderr, "%s: %s\n", what, ncclGetLastError(nullptr));
  }
}
#define CHECK(call) check(call, #call)

struct Rank {
  int number = 0;
  int nranks = 0;
  bool is_wrong = false;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;  // does not wait for the default stream
  cudaStream_t other = nullptr;   // likewise
  float* send = nullptr;
  float* recv = nullptr;
  bool leaks = false;

  [[nodiscard]] bool errs(int rank) const { return is_wrong && number == rank; }
  void all_reduce(size_t count = kCount) const {
    CHECK(ncclAllReduce(send, recv, count, ncclFloat, ncclSum, comm, stream));
  }
  void wait() const {
    CHECK(cudaStreamSynchronize(stream));
    ncclResult_t failure = ncclSuccess;
    if (ncclCommGetAsyncError(comm, &failure) == ncclSuccess && failure != ncclSuccess) {
      std::fprintf(stderr, "the call failed: %s\n", ncclGetLastError(comm));
    }
  }
};

// ---- calls that do not fit together ----

void missing_call(Rank& r) {
  if (!r.errs(1)) {
    r.all_reduce();
  }
}
void other_order(Rank& r) {
  const auto broadcast = [&] {
    CHECK(ncclBroadcast(r.send, r.recv, kCount, ncclFloat, 0, r.comm, r.stream));
  };
  if (r.errs(1)) {
    broadcast();
    r.all_reduce();
  } else {
    r.all_reduce();
    broadcast();
  }
}
void other_count(Rank& r) { r.all_reduce(r.errs(1) ? kCount / 2 : kCount); }
void other_type(Rank& r) {
  CHECK(ncclAllReduce(r.send, r.recv, kCount, r.errs(1) ? ncclInt32 : ncclFloat, ncclSum, r.comm,
                      r.stream));
}
void other_operation(Rank& r) {
  CHECK(ncclAllReduce(r.send, r.recv, kCount, ncclFloat, r.errs(1) ? ncclMax : ncclSum, r.comm,
                      r.stream));
}
void other_root(Rank& r) {
  CHECK(ncclBroadcast(r.send, r.recv, kCount, ncclFloat, r.errs(1) ? 1 : 0, r.comm, r.stream));
}
void no_such_root(Rank& r) {
  CHECK(ncclReduce(r.send, r.recv, kCount, ncclFloat, ncclSum, r.is_wrong ? r.nranks : 0, r.comm,
                   r.stream));
}
void send_without_receive(Rank& r) {
  if (r.number == 0) {
    CHECK(ncclSend(r.send, kCount, ncclFloat, 1, r.comm, r.stream));
  } else if (!r.is_wrong) {
    CHECK(ncclRecv(r.recv, kCount, ncclFloat, 0, r.comm, r.stream));
  }
}
void receives_before_sends(Rank& r) {
  const int peer = 1 - r.number;
  if (!r.is_wrong) {
    CHECK(ncclGroupStart());
  }
  CHECK(ncclRecv(r.recv, kCount, ncclFloat, peer, r.comm, r.stream));
  CHECK(ncclSend(r.send, kCount, ncclFloat, peer, r.comm, r.stream));
  if (!r.is_wrong) {
    CHECK(ncclGroupEnd());
  }
}

// ---- groups and communicators ----

void group_not_ended(Rank& r) {
  CHECK(ncclGroupStart());
  r.all_reduce();
  if (!r.errs(1)) {
    CHECK(ncclGroupEnd());
  }
}
void leaked_communicator(Rank& r) {
  r.all_reduce();
  r.leaks = r.errs(1);
}
void destroyed_communicator(Rank& r) {
  r.all_reduce();
  r.wait();
  if (r.errs(0)) {
    CHECK(ncclCommDestroy(r.comm));
    r.all_reduce();
    r.leaks = true;  // it is gone
  }
}
void two_threads(Rank& r) {
  constexpr int kCalls = 200;
  std::barrier together(r.is_wrong ? 2 : 1);
  const auto calls = [&] {
    for (int i = 0; i < kCalls; ++i) {
      together.arrive_and_wait();
      r.all_reduce(1);
    }
  };
  if (r.is_wrong) {
    std::thread second(calls);
    calls();
    second.join();
  } else {
    std::thread(calls).join();
    std::thread(calls).join();
  }
}

// ---- memory ----

void freed_buffer(Rank& r) {
  if (r.errs(1)) {
    CHECK(cudaFree(r.send));
  }
  r.all_reduce();
  if (r.errs(1)) {
    r.send = nullptr;
  }
}
void freed_nccl_buffer(Rank& r) {
  float* const before = r.send;
  void* memory = nullptr;
  CHECK(ncclMemAlloc(&memory, kBytes));
  std::memset(memory, 0, kBytes);
  r.send = static_cast<float*>(memory);
  if (r.errs(1)) {
    CHECK(ncclMemFree(memory));
  }
  r.all_reduce();
  r.wait();
  if (!r.errs(1)) {
    CHECK(ncclMemFree(memory));
  }
  r.send = before;
}
void freed_twice(Rank& r) {
  r.all_reduce();
  r.wait();
  CHECK(cudaFree(r.send));
  if (!r.is_wrong) {
    r.send = nullptr;  // else it is freed at the end again
  }
}
void unwritten_buffer(Rank& r) {
  float* fresh = nullptr;
  CHECK(cudaMalloc(&fresh, kBytes));
  CHECK(cudaMemsetAsync(fresh, 0, r.errs(1) ? kBytes / 2 : kBytes, r.stream));
  CHECK(ncclAllReduce(fresh, r.recv, kCount, ncclFloat, ncclSum, r.comm, r.stream));
  r.wait();
  CHECK(cudaFree(fresh));
}
void small_buffer(Rank& r) { r.all_reduce(r.is_wrong ? 2 * kCount : kCount); }
void pageable_buffer(Rank& r) {
  std::vector<float> host(kCount);
  CHECK(ncclAllReduce(r.errs(1) ? host.data() : r.send, r.recv, kCount, ncclFloat, ncclSum, r.comm,
                      r.stream));
  r.wait();
}
void buffer_of_other_device(Rank& r) {
  float* there = nullptr;
  CHECK(cudaSetDevice(r.errs(1) ? 7 : r.number));
  CHECK(cudaMalloc(&there, kBytes));
  CHECK(cudaMemset(there, 0, kBytes));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaSetDevice(r.number));
  CHECK(ncclAllReduce(there, r.recv, kCount, ncclFloat, ncclSum, r.comm, r.stream));
  r.wait();
  CHECK(cudaFree(there));
}

// ---- buffers whose users have no order ----

/// The stream `second` waits for what `first` has now.
void join(const Rank& r, cudaStream_t first, cudaStream_t second) {
  if (r.is_wrong) {
    return;
  }
  cudaEvent_t event = nullptr;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CHECK(cudaEventRecord(event, first));
  CHECK(cudaStreamWaitEvent(second, event, 0));
  CHECK(cudaEventDestroy(event));
}
void filled_on_other_stream(Rank& r) {
  CHECK(cudaMemsetAsync(r.send, 1, kBytes, r.other));
  join(r, r.other, r.stream);
  r.all_reduce();
}
void overwritten_too_early(Rank& r) {
  r.all_reduce();
  join(r, r.stream, r.other);
  CHECK(cudaMemsetAsync(r.send, 2, kBytes, r.other));
  CHECK(cudaStreamSynchronize(r.other));
}
void read_too_early(Rank& r) {
  std::vector<float> result(kCount);
  r.all_reduce();
  if (!r.is_wrong) {
    r.wait();
  }
  CHECK(cudaMemcpy(result.data(), r.recv, kBytes, cudaMemcpyDeviceToHost));
}
void freed_too_early(Rank& r) {
  r.all_reduce();
  if (!r.is_wrong) {
    r.wait();
  }
  CHECK(cudaFree(r.recv));
  r.recv = nullptr;
}
void freed_on_other_stream(Rank& r) {
  r.all_reduce();
  join(r, r.stream, r.other);
  CHECK(cudaFreeAsync(r.recv, r.other));
  r.recv = nullptr;
}
void written_by_other_call(Rank& r) {
  ncclComm_t second = nullptr;
  CHECK(ncclCommSplit(r.comm, 0, r.number, &second, nullptr));
  r.all_reduce();
  join(r, r.stream, r.other);
  CHECK(ncclAllReduce(r.send, r.recv, kCount, ncclFloat, ncclMax, second, r.other));
  CHECK(cudaStreamSynchronize(r.other));
  CHECK(ncclCommDestroy(second));
}
void steps_in_one_group(Rank& r) {
  const int peer = 1 - r.number;
  const auto step = [&](float* from, float* to) {
    CHECK(ncclSend(from, kCount / 2, ncclFloat, peer, r.comm, r.stream));
    CHECK(ncclRecv(to, kCount / 2, ncclFloat, peer, r.comm, r.stream));
  };
  CHECK(ncclGroupStart());
  step(r.send, r.recv);
  if (!r.is_wrong) {
    CHECK(ncclGroupEnd());
    CHECK(ncclGroupStart());
  }
  step(r.recv, r.recv + kCount / 2);  // passes on what the first step has received
  CHECK(ncclGroupEnd());
}
void waited_for_wrong_event(Rank& r) {
  cudaEvent_t event = nullptr;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  if (r.is_wrong) {
    CHECK(cudaEventRecord(event, r.stream));
  }
  r.all_reduce();
  if (!r.is_wrong) {
    CHECK(cudaEventRecord(event, r.stream));
  }
  CHECK(cudaStreamWaitEvent(r.other, event, 0));
  CHECK(cudaMemsetAsync(r.recv, 0, kBytes, r.other));
  CHECK(cudaStreamSynchronize(r.other));
  CHECK(cudaEventDestroy(event));
}

const std::map<std::string, void (*)(Rank&)> kCases = {
    {"missing_call", missing_call},
    {"other_order", other_order},
    {"other_count", other_count},
    {"other_type", other_type},
    {"other_operation", other_operation},
    {"other_root", other_root},
    {"no_such_root", no_such_root},
    {"send_without_receive", send_without_receive},
    {"receives_before_sends", receives_before_sends},
    {"group_not_ended", group_not_ended},
    {"leaked_communicator", leaked_communicator},
    {"destroyed_communicator", destroyed_communicator},
    {"two_threads", two_threads},
    {"freed_buffer", freed_buffer},
    {"freed_nccl_buffer", freed_nccl_buffer},
    {"freed_twice", freed_twice},
    {"unwritten_buffer", unwritten_buffer},
    {"small_buffer", small_buffer},
    {"pageable_buffer", pageable_buffer},
    {"buffer_of_other_device", buffer_of_other_device},
    {"filled_on_other_stream", filled_on_other_stream},
    {"overwritten_too_early", overwritten_too_early},
    {"read_too_early", read_too_early},
    {"freed_too_early", freed_too_early},
    {"freed_on_other_stream", freed_on_other_stream},
    {"written_by_other_call", written_by_other_call},
    {"waited_for_wrong_event", waited_for_wrong_event},
    {"steps_in_one_group", steps_in_one_group},
};

}  // namespace

int main(int argc, char** argv) {
  const auto found = argc == 3 ? kCases.find(argv[1]) : kCases.end();
  if (found == kCases.end()) {
    for (const auto& [name, body] : kCases) {
      std::printf("%s\n", name.c_str());
    }
    return 2;
  }
  Rank rank;
  rank.is_wrong = std::string(argv[2]) == "wrong";
  ncclUniqueId id;
  CHECK(plexusGetUniqueIdFromEnvironment(&id, &rank.nranks, &rank.number));
  CHECK(cudaSetDevice(rank.number));
  CHECK(ncclCommInitRank(&rank.comm, rank.nranks, id, rank.number));
  CHECK(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&rank.other, cudaStreamNonBlocking));
  CHECK(cudaMalloc(&rank.send, kBytes));
  CHECK(cudaMalloc(&rank.recv, kBytes));
  CHECK(cudaMemset(rank.send, 0, kBytes));
  CHECK(cudaMemset(rank.recv, 0, kBytes));
  CHECK(cudaDeviceSynchronize());
  found->second(rank);
  rank.wait();
  if (!rank.leaks) {
    CHECK(ncclCommDestroy(rank.comm));
  }
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaFree(rank.send));
  CHECK(cudaFree(rank.recv));
  CHECK(cudaStreamDestroy(rank.stream));
  CHECK(cudaStreamDestroy(rank.other));
  return 0;
}
