// SPDX-License-Identifier: Apache-2.0
// Compares the public API with the device's limits in one run: all_reduce with the time in which a
// copy on the device moves every rank's input and output once, small calls with an empty
// cooperative kernel. Prints tables. Slow results do not fail: the exit code is 0 if everything was
// measured, and 77 if the machine that PLEXUS_TEST_MACHINE names is missing.
//
//   gpu_measure             a few sizes as the library does them
//   gpu_measure sweep       more sizes; algorithms, protocols and channels given
//   gpu_measure grid        short messages: us by algorithm, protocol and size
//   gpu_measure captured    what calls cost while graphs hold many captured ones
//   gpu_measure copy|sum|small   one call, for a profiler: broadcast of 256 MiB on 2 ranks,
//   all_reduce of
//                           256 MiB on 8, of 8 bytes on 8
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <string_view>

#include "tests/device/job.hpp"
#include "tests/gpu/calls.hpp"

namespace plexus::testing_device {
namespace {

// The target values.
constexpr double kFloorMax = 1.45;    // relative to the floor of an all_reduce
constexpr double kLatencyMax = 2.00;  // relative to an empty kernel

constexpr size_t kGridBytes[] = {8,         1 << 10, 4 << 10, 16 << 10, 64 << 10,
                                 256 << 10, 1 << 20, 4 << 20, 16 << 20};

/// Microseconds per call for `calls` calls of `start`, until `wait` returns; after as many that are
/// not measured, which take what is needed for so many calls in flight.
double measure_us(int calls,
                  const std::function<void()>& start,
                  const std::function<void()>& wait) {
  for (int i = 0; i < std::max(calls, 3); ++i) {
    start();
  }
  wait();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) {
    start();
  }
  wait();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
             .count() /
         calls;
}

/// Ends at the first failure, because a missing measurement has no row.
void check(ncclResult_t result) {
  if (result != ncclSuccess) {
    std::fprintf(stderr, "%s\n", ncclGetLastError(nullptr));
    std::exit(1);
  }
}

/// The ranks of one process on one device, all calls on `stream`.
class Ranks {
 public:
  explicit Ranks(int nranks) : job_(std::vector<int>(static_cast<size_t>(nranks), 0)) {}

  void all_reduce(const std::vector<Buffer<float>>& buffers, size_t count, bool one_stream) {
    check(ncclGroupStart());
    for (int rank = 0; rank < job_.nranks(); ++rank) {
      float* const data = buffers[static_cast<size_t>(rank)].data();
      check(ncclAllReduce(data, data, count, ncclFloat32, ncclSum, job_.comm(rank),
                          job_.stream(one_stream ? 0 : rank)));
    }
    check(ncclGroupEnd());
  }
  void broadcast(const std::vector<Buffer<float>>& buffers, size_t count) {
    check(ncclGroupStart());
    for (int rank = 0; rank < job_.nranks(); ++rank) {
      float* const data = buffers[static_cast<size_t>(rank)].data();
      check(ncclBroadcast(data, data, count, ncclFloat32, 0, job_.comm(rank), job_.stream(0)));
    }
    check(ncclGroupEnd());
  }
  std::vector<Buffer<float>> buffers(size_t count) {
    std::vector<Buffer<float>> made;
    made.reserve(job_.comm_count());
    for (int rank = 0; rank < job_.nranks(); ++rank) {
      made.emplace_back(0, count);
    }
    return made;
  }
  void wait() { job_.synchronize(); }
  Job& job() { return job_; }

 private:
  Job job_;
};

struct Choice {
  const char* algorithm = "";
  const char* protocol = "";
  int channels = 0;
};
Choice last_choice(ncclComm_t comm) {
  Choice choice;
  check(plexusGetLastChoice(comm, &choice.algorithm, &choice.protocol, &choice.channels));
  return choice;
}

const char* verdict(bool reached) { return reached ? "yes" : "**no**"; }

/// Bytes per microsecond, read and written.
double copy_rate(size_t size_bytes, int calls) {
  const Buffer<std::byte> from(0, size_bytes);
  const Buffer<std::byte> to(0, size_bytes);
  const DeviceStream stream = machine().make_stream(0);
  const double us = measure_us(
      calls, [&] { machine().copy_in_order(stream, to.data(), from.data(), size_bytes); },
      [&] { machine().synchronize(stream); });
  machine().destroy_stream(stream);
  return 2.0 * static_cast<double>(size_bytes) / us;
}

void bandwidth_head(const char* title, double copied) {
  std::printf("\n%s; a copy on the device moves %.0f GB/s (read + written)\n\n", title,
              copied / 1e3);
  std::printf(
      "| ranks | bytes | algorithm | protocol | channels | us | floor, us | times that | <= %.2f "
      "|\n"
      "|---|---|---|---|---|---|---|---|---|\n",
      kFloorMax);
}

/// The floor: each rank's input is read and its output written once, at the rate of a copy.
void bandwidth_row(Ranks& ranks, size_t size_bytes, double copied) {
  const int nranks = ranks.job().nranks();
  const size_t count = size_bytes / sizeof(float);
  const auto buffers = ranks.buffers(count);
  const double us = measure_us(
      machine().is_software() ? 2 : 10, [&] { ranks.all_reduce(buffers, count, true); },
      [&] { ranks.wait(); });
  const Choice choice = last_choice(ranks.job().comm(0));
  const double floor_us = 2.0 * nranks * static_cast<double>(size_bytes) / copied;
  std::printf("| %d | %zu | %s | %s | %d | %.1f | %.1f | %.2f | %s |\n", nranks, size_bytes,
              choice.algorithm, choice.protocol, choice.channels, us, floor_us, us / floor_us,
              verdict(us <= kFloorMax * floor_us));
  std::fflush(stdout);
}

/// Smaller on the software device, whose numbers have no meaning.
size_t megabytes(size_t number) { return number << (machine().is_software() ? 10 : 20); }

constexpr const char* kAsItIs = "all_reduce of ranks of one process on one device";

void measure_bandwidth(double copied) {
  bandwidth_head(kAsItIs, copied);
  for (const int nranks : {8, 4, 2}) {
    Ranks ranks(nranks);
    bandwidth_row(ranks, 64 << 10, copied);
    bandwidth_row(ranks, megabytes(256), copied);
  }
}

void sweep_sizes(double copied) {
  bandwidth_head(kAsItIs, copied);
  for (const int nranks : {8, 2}) {
    Ranks ranks(nranks);
    for (const size_t kilobytes : {16, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20}) {
      bandwidth_row(ranks, kilobytes << (machine().is_software() ? 2 : 10), copied);
    }
  }
}

void bandwidth_row_of(const char* algorithm, int channels, int nranks, double copied) {
  const std::string count = std::to_string(channels);
  const Setting setting("NCCL_ALGO", algorithm);
  const Setting least("NCCL_MIN_CTAS", count.c_str());
  const Setting most("NCCL_MAX_CTAS", count.c_str());
  Ranks ranks(nranks);
  bandwidth_row(ranks, megabytes(256), copied);
}

void sweep_bandwidth(double copied) {
  constexpr int kChannelsMax = 64;
  if (machine().is_software()) {
    return;  // a thread for each block
  }
  for (const char* const buffer : {"1048576", "4194304"}) {
    const std::string title =
        std::string("the same, algorithm and channels given, NCCL_BUFFSIZE=") + buffer;
    bandwidth_head(title.c_str(), copied);
    const Setting size("NCCL_BUFFSIZE", buffer);
    for (const char* const algorithm : {"twoshot", "ring", "allpairs"}) {
      for (const int blocks : {256, 128, 64}) {
        bandwidth_row_of(algorithm, blocks / 8, 8, copied);
        bandwidth_row_of(algorithm, std::min(blocks / 2, kChannelsMax), 2, copied);
      }
    }
  }
}

void latency_row(const char* how, double us, double empty_us, const GraphShape& shape) {
  std::printf("| %s | %.1f | %u x %u | %.1f | %.2f | %s |\n", how, us, shape.blocks, shape.threads,
              empty_us, us / empty_us, verdict(us <= kLatencyMax * empty_us));
  std::fflush(stdout);
}

void latency_head(const char* title) {
  std::printf(
      "\n%s\n\n| how | us | blocks x threads | empty kernel, us | times that | <= %.2f |\n"
      "|---|---|---|---|---|---|\n",
      title, kLatencyMax);
}

/// 8 B of 8 ranks; `all_ways`: also with a stream for each rank.
void latency_rows(bool all_ways) {
  constexpr int kCalls = 300;
  Ranks ranks(8);
  const auto buffers = ranks.buffers(2);
  ranks.all_reduce(buffers, 2, true);  // connects
  ranks.wait();
  const DeviceStream stream = ranks.job().stream(0);
  machine().begin_capture(stream);
  ranks.all_reduce(buffers, 2, true);
  const Graph graph = machine().end_capture(stream);
  const GraphShape shape = machine().shape_of(graph);
  const auto measured = [&](const std::function<void()>& call) {
    return measure_us(
        kCalls,
        [&] {
          call();
          machine().synchronize(stream);
        },
        [] {});
  };
  const double empty_us =
      measured([&] { machine().launch_empty(stream, shape.blocks, shape.threads); });
  const Choice choice = last_choice(ranks.job().comm(0));
  const auto row = [&](const char* way, double us) {
    const std::string name = fmt::format("{} ({}, {}, {} channels)", way, choice.algorithm,
                                         choice.protocol, choice.channels);
    latency_row(name.c_str(), us, empty_us, shape);
  };
  if (all_ways) {
    row("calls on a stream for each rank", measured([&] {
          ranks.all_reduce(buffers, 2, false);
          ranks.wait();
        }));
  }
  row("calls on one stream", measured([&] { ranks.all_reduce(buffers, 2, true); }));
  row("replays of a graph", measured([&] { machine().replay(graph, stream); }));
}

void measure_latency() {
  latency_head("8 B all_reduce of 8 ranks of one process on one device, launch to completion");
  latency_rows(true);
}

void sweep_latency() {
  latency_head("the same, algorithm and protocol given");
  for (const char* const algorithm : {"allpairs", "doubling", "tree"}) {
    for (const char* const protocol : {"LL", "LL128", "Simple"}) {
      const Setting given("NCCL_ALGO", algorithm);
      const Setting spoken("NCCL_PROTO", protocol);
      latency_rows(false);
    }
  }
}

/// A row of microseconds; "": the library's own choice, which is printed.
void grid_row(int nranks, const char* algorithm, const char* protocol) {
  std::optional<Setting> given;
  std::optional<Setting> spoken;
  const bool is_free = *algorithm == '\0';
  if (!is_free) {
    given.emplace("NCCL_ALGO", algorithm);
    spoken.emplace("NCCL_PROTO", protocol);
  }
  Ranks ranks(nranks);
  std::printf("| %s | %s |", is_free ? "(own choice)" : algorithm, protocol);
  for (const size_t size_bytes : kGridBytes) {
    const size_t count = size_bytes / sizeof(float);
    const auto buffers = ranks.buffers(count);
    const double us = measure_us(
        machine().is_software() ? 1 : 20, [&] { ranks.all_reduce(buffers, count, true); },
        [&] { ranks.wait(); });
    std::printf(" %.1f", us);
    if (is_free) {
      const Choice choice = last_choice(ranks.job().comm(0));
      std::printf(" %s %s %d", choice.algorithm, choice.protocol, choice.channels);
    }
    std::printf(" |");
  }
  std::printf("\n");
  std::fflush(stdout);
}

void measure_grid(int nranks) {
  std::printf("\nall_reduce of %d ranks of one process on one device, us by bytes\n\n", nranks);
  std::printf("| algorithm | protocol |");
  for (const size_t size_bytes : kGridBytes) {
    std::printf(" %zu |", size_bytes);
  }
  std::printf("\n|---|---|---|---|---|---|---|---|---|---|---|\n");
  grid_row(nranks, "", "");
  for (const char* const algorithm :
       {"allpairs", "doubling", "quadrupling", "twoshot", "tree", "ring"}) {
    for (const char* const protocol : {"LL", "LL128", "Simple"}) {
      grid_row(nranks, algorithm, protocol);
    }
  }
}

/// Of the host, from the begin of a group to its end, while the communicators' captured calls are
/// held by graphs.
void measure_captured() {
  constexpr int kCallsOfGraph = 1000;
  constexpr int kCalls = 5000;
  Ranks ranks(2);
  const auto buffers = ranks.buffers(2);
  const DeviceStream stream = ranks.job().stream(0);
  const auto call = [&] { ranks.all_reduce(buffers, 2, true); };
  call();  // connects
  ranks.wait();
  std::printf(
      "\n| captured calls that graphs hold | us of a group's calls, median of %d |\n|---|---|\n",
      kCalls);
  std::vector<Graph> graphs;
  for (const int held : {0, 1000, 10'000}) {
    while (static_cast<int>(graphs.size()) * kCallsOfGraph < held) {
      machine().begin_capture(stream);
      for (int i = 0; i < kCallsOfGraph; ++i) {
        call();
      }
      graphs.push_back(machine().end_capture(stream));
    }
    std::vector<double> times_us;
    for (int i = 0; i < kCalls; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      call();
      const auto end = std::chrono::steady_clock::now();
      times_us.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
      ranks.wait();
    }
    const auto middle = times_us.begin() + kCalls / 2;
    std::nth_element(times_us.begin(), middle, times_us.end());
    std::printf("| %d | %.2f |\n", held, *middle);
  }
}

/// One call after another of the same shape, so that the profiled one connects nothing.
void call_twice(std::string_view what) {
  Ranks ranks(what == "copy" ? 2 : 8);
  const size_t count = what == "small" ? 2 : megabytes(256) / sizeof(float);
  const auto buffers = ranks.buffers(count);
  for (int i = 0; i < 2; ++i) {
    if (what == "copy") {
      ranks.broadcast(buffers, count);
    } else {
      ranks.all_reduce(buffers, count, true);
    }
    ranks.wait();
  }
}

int measure(std::string_view what) {
  if (const std::string reason = machine_missing(); !reason.empty()) {
    std::printf("SKIPPED: %s; nothing is measured.\n", reason.c_str());
    constexpr int kSkipped = 77;
    return kSkipped;
  }
  setenv("PLEXUS_DEVICE", "cuda", 1);
  std::printf("machine: %s\n", machine().name().c_str());
  if (what == "copy" || what == "sum" || what == "small") {
    call_twice(what);
    return 0;
  }
  if (what == "grid") {
    measure_grid(8);
    measure_grid(2);
    return 0;
  }
  if (what == "captured") {
    measure_captured();
    return 0;
  }
  const double copied = copy_rate(megabytes(1024), 20);
  if (what == "sweep") {
    sweep_sizes(copied);
    sweep_bandwidth(copied);
    sweep_latency();
  } else {
    measure_latency();
    measure_bandwidth(copied);
  }
  return 0;
}

}  // namespace
}  // namespace plexus::testing_device

int main(int argc, char** argv) { return plexus::testing_device::measure(argc > 1 ? argv[1] : ""); }
