// SPDX-License-Identifier: Apache-2.0
// Training steps without a framework: every process computes and, while it goes on computing, a
// stream reduces the gradients that it has so far, bucket by bucket, as data-parallel training
// does. Prints what a step takes when it only computes, only reduces, and does both, with the
// processor time of all processes.
//
//   bench_overlap RANKS BUCKETS BUCKET_BYTES COMPUTE_US THREADS [STEPS]
//
// COMPUTE_US: processor time of computing before each bucket; THREADS of the process share it, as
// with OpenMP. What both need of the cores is the least that a step can take: compute + reduce when
// there are at least as many processes as cores.
#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <nccl.h>
#include <plexus.h>
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

struct Options {
  int ranks = 0;
  int buckets = 0;
  size_t bucket_bytes = 0;
  int64_t compute_us = 0;
  int threads = 0;
  int steps = 0;
};

enum Mode : size_t { kCompute, kReduce, kBoth, kModes };
constexpr std::array<const char*, kModes> kModeNames = {"compute", "reduce", "both"};

struct Shared {
  ncclUniqueId id;
  ProcessBarrier all;
  std::array<std::atomic<int64_t>, kModes> step_ns;  // slowest process, median step
  std::array<std::atomic<int64_t>, kModes> cpu_us;   // all processes, all steps
};

void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) {
    fmt::print(stderr, "{}: {}\n", what, ncclGetLastError(nullptr));
    std::_Exit(1);
  }
}

int64_t cpu_us() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  constexpr int64_t kMicros = 1'000'000;
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * kMicros + usage.ru_utime.tv_usec +
         usage.ru_stime.tv_usec;
}

/// Work of a fixed amount, in registers.
double compute(int64_t rounds) {
  double sum = 1;
  for (int64_t i = 0; i < rounds; ++i) {
    sum = sum * 0.999999 + 1e-9;
  }
  return sum;
}

/// Rounds of compute() in a microsecond on an idle core: the fastest of several tries.
double calibrate() {
  constexpr int64_t kRounds = 200'000;
  constexpr int kTries = 50;
  double best = 0;
  volatile double sink = 0;
  for (int i = 0; i < kTries; ++i) {
    const auto start = Clock::now();
    sink = compute(kRounds);
    const std::chrono::duration<double, std::micro> time = Clock::now() - start;
    best = std::max(best, static_cast<double>(kRounds) / time.count());
  }
  (void)sink;
  return best;
}

/// Threads that share a computation, the caller among them.
class Team {
 public:
  explicit Team(int size) : begin_(size), end_(size), size_(size) {
    for (int i = 1; i < size; ++i) {
      helpers_.emplace_back([this] { help(); });
    }
  }
  ~Team() {
    rounds_ = 0;
    begin_.arrive_and_wait();
    for (std::thread& helper : helpers_) {
      helper.join();
    }
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  void run(int64_t rounds) {
    rounds_ = rounds / size_;
    begin_.arrive_and_wait();
    sink_ = compute(rounds_);
    end_.arrive_and_wait();
  }

 private:
  void help() {
    for (;;) {
      begin_.arrive_and_wait();
      if (rounds_ == 0) {
        return;
      }
      volatile double sink = compute(rounds_);
      (void)sink;
      end_.arrive_and_wait();
    }
  }
  std::barrier<> begin_;
  std::barrier<> end_;
  int size_;
  int64_t rounds_ = 0;
  volatile double sink_ = 0;
  std::vector<std::thread> helpers_;
};

class Rank {
 public:
  Rank(Shared& shared, const Options& options, int rank, double rounds_per_us)
      : shared_(shared),
        options_(options),
        rounds_(static_cast<int64_t>(rounds_per_us * static_cast<double>(options.compute_us))),
        team_(options.threads) {
    check(ncclCommInitRank(&comm_, options.ranks, shared.id, rank), "ncclCommInitRank");
    check(plexusStreamCreate(&stream_), "plexusStreamCreate");
    for (int i = 0; i < options.buckets; ++i) {
      buckets_.emplace_back(options.bucket_bytes / sizeof(float), 1.0F);
    }
  }
  void run(Mode mode) {
    std::vector<int64_t> times;
    int64_t cpu = 0;
    for (int step = -2; step < options_.steps; ++step) {  // the first two are a warm-up
      shared_.all.wait();
      const int64_t cpu_before = cpu_us();
      const auto start = Clock::now();
      take_step(mode);
      if (step >= 0) {
        times.push_back((Clock::now() - start).count());
        cpu += cpu_us() - cpu_before;
      }
    }
    std::sort(times.begin(), times.end());
    int64_t seen = shared_.step_ns[mode].load();
    const int64_t median = times[times.size() / 2];
    while (seen < median && !shared_.step_ns[mode].compare_exchange_weak(seen, median)) {
    }
    shared_.cpu_us[mode] += cpu;
  }
  void end() {
    check(plexusStreamDestroy(stream_), "plexusStreamDestroy");
    check(ncclCommDestroy(comm_), "ncclCommDestroy");
  }

 private:
  void take_step(Mode mode) {
    for (std::vector<float>& bucket : buckets_) {
      if (mode != kReduce) {
        team_.run(rounds_);
      }
      if (mode != kCompute) {
        check(ncclAllReduce(bucket.data(), bucket.data(), bucket.size(), ncclFloat, ncclAvg, comm_,
                            stream_),
              "ncclAllReduce");
      }
    }
    check(plexusStreamSynchronize(stream_), "plexusStreamSynchronize");
  }

  Shared& shared_;
  const Options& options_;
  int64_t rounds_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::vector<std::vector<float>> buckets_;
  Team team_;
};

void run_process(Shared& shared, const Options& options, int rank, double rounds_per_us) {
  if (rank == 0) {
    check(ncclGetUniqueId(&shared.id), "ncclGetUniqueId");
  }
  shared.all.wait();
  Rank one(shared, options, rank, rounds_per_us);
  for (size_t mode = 0; mode < kModes; ++mode) {
    one.run(static_cast<Mode>(mode));
  }
  one.end();
}

int usage() {
  fmt::print(stderr,
             "usage: bench_overlap RANKS BUCKETS BUCKET_BYTES COMPUTE_US THREADS [STEPS]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6 || argc > 7) {
    return usage();
  }
  constexpr int kSteps = 30;
  const Options options{.ranks = std::atoi(argv[1]),
                        .buckets = std::atoi(argv[2]),
                        .bucket_bytes = static_cast<size_t>(std::atoll(argv[3])),
                        .compute_us = std::atoll(argv[4]),
                        .threads = std::atoi(argv[5]),
                        .steps = argc > 6 ? std::atoi(argv[6]) : kSteps};
  if (options.ranks < 1 || options.buckets < 1 || options.bucket_bytes < sizeof(float) ||
      options.compute_us < 0 || options.threads < 1 || options.steps < 1) {
    return usage();
  }
  auto& shared = plexus::testing_process::make_shared_object<Shared>();
  shared.all.open(static_cast<size_t>(options.ranks));
  const double rounds_per_us = calibrate();
  std::vector<pid_t> children;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      run_process(shared, options, rank, rounds_per_us);
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
  constexpr double kNsPerMs = 1e6;
  constexpr double kUsPerMs = 1e3;
  for (size_t mode = 0; mode < kModes; ++mode) {
    fmt::print("{:8} {:8.2f} ms a step, {:8.2f} ms of processor time\n", kModeNames[mode],
               static_cast<double>(shared.step_ns[mode]) / kNsPerMs,
               static_cast<double>(shared.cpu_us[mode]) / kUsPerMs / options.steps);
  }
  return 0;
}
