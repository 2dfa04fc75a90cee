// SPDX-License-Identifier: Apache-2.0
// A program in the shape of NVIDIA's nccl-tests and of NCCL's examples: one process with THREADS
// threads of GPUS devices each, of PROCESSES that a launcher of MPI started (0: no launcher).
// Usage: cudart_collectives GPUS THREADS [PROCESSES]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <nccl.h>
#include <plexus.h>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kCount = 10007;
constexpr int kRounds = 5;

void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) {
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
    std::exit(1);
  }
}
void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) {
    std::fprintf(stderr, "%s: %s\n", what, ncclGetLastError(nullptr));
    std::exit(1);
  }
}
#define CHECK(call) check(call, #call)

struct Job {
  ncclUniqueId id;
  int nranks;
  int first_rank;    // of this process
  int first_device;  // likewise
};

struct Rank {
  int number;
  int device;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* send = nullptr;
  float* recv = nullptr;
};

void set_up(Rank& rank, const Job& job) {
  CHECK(cudaSetDevice(rank.device));
  const size_t bytes = kCount * sizeof(float) * static_cast<size_t>(job.nranks);
  CHECK(cudaMalloc(&rank.send, bytes));
  CHECK(cudaMalloc(&rank.recv, bytes));
  CHECK(cudaStreamCreateWithFlags(
      &rank.stream, rank.number % 2 == 0 ? cudaStreamNonBlocking : cudaStreamDefault));
}

/// Polls as nccl-tests does.
void wait(const Rank& rank) {
  for (;;) {
    const cudaError_t state = cudaStreamQuery(rank.stream);
    if (state == cudaSuccess) {
      return;
    }
    if (state != cudaErrorNotReady) {
      check(state, "cudaStreamQuery");
    }
    ncclResult_t failure = ncclSuccess;
    CHECK(ncclCommGetAsyncError(rank.comm, &failure));
    check(failure, "ncclCommGetAsyncError");
    std::this_thread::yield();
  }
}

void expect(const Rank& rank, size_t index, float expected, const char* what) {
  std::vector<float> got(kCount);
  CHECK(cudaMemcpy(got.data(), rank.recv + index * kCount, kCount * sizeof(float),
                   cudaMemcpyDeviceToHost));
  for (const float value : got) {
    if (value != expected) {
      std::fprintf(stderr, "rank %d: %s gave %g, expected %g\n", rank.number, what,
                   static_cast<double>(value), static_cast<double>(expected));
      std::exit(1);
    }
  }
}

void fill(const Rank& rank, size_t parts) {
  CHECK(cudaSetDevice(rank.device));
  const std::vector<float> values(kCount * parts, static_cast<float>(rank.number + 1));
  CHECK(cudaMemcpyAsync(rank.send, values.data(), values.size() * sizeof(float),
                        cudaMemcpyHostToDevice, rank.stream));
  CHECK(cudaMemsetAsync(rank.recv, 0xff, values.size() * sizeof(float), rank.stream));
}

template <class Issue, class Verify>
void round(std::vector<Rank>& ranks, int nranks, const Issue& issue, const Verify& verify) {
  for (Rank& rank : ranks) {
    fill(rank, static_cast<size_t>(nranks));
  }
  CHECK(ncclGroupStart());
  for (Rank& rank : ranks) {
    issue(rank);
  }
  CHECK(ncclGroupEnd());
  for (Rank& rank : ranks) {
    wait(rank);
    CHECK(cudaSetDevice(rank.device));
    verify(rank);
  }
}

void run_rounds(std::vector<Rank>& ranks, int nranks) {
  const auto n = static_cast<size_t>(nranks);
  const auto sum = static_cast<float>(nranks * (nranks + 1) / 2);
  round(
      ranks, nranks,
      [](Rank& r) {
        CHECK(ncclAllReduce(r.send, r.recv, kCount, ncclFloat, ncclSum, r.comm, r.stream));
      },
      [&](const Rank& r) { expect(r, 0, sum, "ncclAllReduce"); });
  round(
      ranks, nranks,
      [](Rank& r) { CHECK(ncclAllGather(r.send, r.recv, kCount, ncclFloat, r.comm, r.stream)); },
      [&](const Rank& r) {
        for (size_t i = 0; i < n; ++i) {
          expect(r, i, static_cast<float>(i + 1), "ncclAllGather");
        }
      });
  round(
      ranks, nranks,
      [](Rank& r) {
        CHECK(ncclReduceScatter(r.send, r.recv, kCount, ncclFloat, ncclMax, r.comm, r.stream));
      },
      [&](const Rank& r) { expect(r, 0, static_cast<float>(nranks), "ncclReduceScatter"); });
  round(
      ranks, nranks,
      [](Rank& r) {
        CHECK(cudaStreamSynchronize(r.stream));  // some do not order the default stream
        CHECK(ncclBroadcast(r.send, r.recv, kCount, ncclFloat, 0, r.comm, nullptr));
        CHECK(cudaSetDevice(r.device));  // the default stream is the device's of the rank
      },
      [&](const Rank& r) { expect(r, 0, 1, "ncclBroadcast on the default stream"); });
  round(
      ranks, nranks,
      [&](Rank& r) {
        CHECK(ncclSend(r.send, kCount, ncclFloat, (r.number + 1) % nranks, r.comm, r.stream));
        CHECK(ncclRecv(r.recv, kCount, ncclFloat, (r.number + nranks - 1) % nranks, r.comm,
                       r.stream));
      },
      [&](const Rank& r) {
        expect(r, 0, static_cast<float>((r.number + nranks - 1) % nranks + 1), "ncclSend");
      });
}

void run_thread(const Job& job, int thread, int gpus) {
  std::vector<Rank> ranks;
  for (int i = 0; i < gpus; ++i) {
    const int local = thread * gpus + i;
    ranks.push_back({.number = job.first_rank + local, .device = job.first_device + local});
  }
  CHECK(ncclGroupStart());
  for (Rank& rank : ranks) {
    set_up(rank, job);
    CHECK(ncclCommInitRank(&rank.comm, job.nranks, job.id, rank.number));
  }
  CHECK(ncclGroupEnd());
  for (Rank& rank : ranks) {
    int device = -1;
    CHECK(ncclCommCuDevice(rank.comm, &device));
    if (device != rank.device) {
      std::fprintf(stderr, "rank %d is on device %d, not %d\n", rank.number, device, rank.device);
      std::exit(1);
    }
  }
  for (int i = 0; i < kRounds; ++i) {
    run_rounds(ranks, job.nranks);
  }
  for (Rank& rank : ranks) {
    CHECK(cudaSetDevice(rank.device));
    CHECK(ncclCommDestroy(rank.comm));
    CHECK(cudaStreamDestroy(rank.stream));
    CHECK(cudaFree(rank.send));
    CHECK(cudaFree(rank.recv));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s GPUS THREADS [PROCESSES]\n", argv[0]);
    return 2;
  }
  const int gpus = std::atoi(argv[1]);
  const int threads = std::atoi(argv[2]);
  Job job{};
  int process = 0;
  int processes = 1;
  if (argc > 3) {
    CHECK(plexusGetUniqueIdFromEnvironment(&job.id, &processes, &process));
  } else {
    CHECK(ncclGetUniqueId(&job.id));
  }
  job.nranks = processes * threads * gpus;
  job.first_rank = process * threads * gpus;
  job.first_device = job.first_rank;
  std::vector<std::thread> all;
  for (int thread = 0; thread < threads; ++thread) {
    all.emplace_back([&, thread] { run_thread(job, thread, gpus); });
  }
  for (std::thread& thread : all) {
    thread.join();
  }
  if (process == 0) {
    std::printf("%d ranks: OK\n", job.nranks);
  }
  return 0;
}
