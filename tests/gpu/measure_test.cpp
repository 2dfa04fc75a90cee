// SPDX-License-Identifier: Apache-2.0
// Compares bandwidth with a device-to-device copy and latency with an empty launch, in one run.
// Prints a table; only impossible results fail (nothing moved, no time taken), because speed
// depends on the GPU and its other users.
#include <cstdio>

#include <gtest/gtest.h>

#include "tests/gpu/bytes_touched.hpp"
#include "tests/gpu/calls.hpp"
#include "tests/gpu/gpu_world.hpp"
#include "tests/support/empty_kernel.hpp"

namespace plexus::test {
namespace {

/// Microseconds per call of `start`, back to back.
template <class Start>
double measure_us(int calls, Start start) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  start();
  check(cudaDeviceSynchronize(), "warm-up");
  check(cudaEventRecord(begin), "event");
  for (int i = 0; i < calls; ++i) {
    start();
  }
  check(cudaEventRecord(end), "event");
  check(cudaEventSynchronize(end), "measured calls");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin, end), "event");
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return 1e3 * milliseconds / calls;
}

TEST(GpuMeasure, BandwidthAgainstACopyOnTheDevice) {
  constexpr size_t kCopyBytes = size_t{1} << 30;
  constexpr int kCalls = 10;
  double copy_rate = 0;
  {
    const Memory source = allocate(kCopyBytes, false);
    const Memory target = allocate(kCopyBytes, false);
    const double us = measure_us(kCalls, [&] {
      check(cudaMemcpyAsync(target.get(), source.get(), kCopyBytes, cudaMemcpyDeviceToDevice),
            "copy");
    });
    copy_rate = 2.0 * kCopyBytes / us;
  }
  ASSERT_GT(copy_rate, 0);
  std::printf("copy on the device: %.0f GB/s (read + written)\n", copy_rate / 1e3);
  int error = 0;
  const uint32_t blocks = device_blocks_max(kDeviceThreadsMax, &error);
  ASSERT_EQ(error, 0);
  for (const int nranks : {2, 4, 8}) {
    for (const uint64_t megabytes : {64, 256, 1024}) {
      const uint32_t channels = blocks / static_cast<uint32_t>(nranks);
      // Whole channels of whole granules, so that all channels start aligned.
      const uint64_t part = (megabytes << 20) / sizeof(float) / channels / 1024 * 1024;
      Call call = make_call("ring_all_reduce", nranks, part * channels, Protocol::kSimple);
      call.type = DataType::kFloat32;
      call.slot_bytes = 512 * 1024;
      call.chunk_bytes = 2 * call.slot_bytes;
      call.count = part;
      const double touched = bytes_touched(call) * channels;
      call.count = part * channels;
      GpuWorld world(call, {.threads = kDeviceThreadsMax, .channels = channels});
      const double us = measure_us(kCalls, [&] { world.start(nullptr); });
      EXPECT_GT(us, 0);
      std::printf("all_reduce %d ranks %4d MiB: %9.1f us, %5.0f GB/s touched, %.2f of the copy\n",
                  nranks, static_cast<int>(megabytes), us, touched / us / 1e3,
                  touched / us / copy_rate);
    }
  }
}

TEST(GpuMeasure, LatencyAgainstAnEmptyLaunch) {
  constexpr int kCalls = 200;
  constexpr uint32_t kThreads = 128;
  for (const char* const algorithm :
       {"all_pairs_all_reduce", "recursive_doubling_all_reduce", "ring_all_reduce"}) {
    for (const Protocol protocol : kProtocols) {
      Call call = make_call(algorithm, 8, 2, protocol);
      call.slot_bytes = 4096;
      call.chunk_bytes = 4096;
      GpuWorld world(call, {.threads = kThreads});
      world.run();
      const auto wait = [] { check(cudaStreamSynchronize(nullptr), "launch"); };
      const double empty_us = measure_us(kCalls, [&] {
        check(static_cast<cudaError_t>(launch_empty(world.block_count(), kThreads, nullptr)),
              "empty");
        wait();
      });
      const double us = measure_us(kCalls, [&] {
        world.start(nullptr);
        wait();
      });
      EXPECT_GT(us, 0);
      std::printf("%s, 8 ranks, 8 B, %s: %.1f us, an empty launch %.1f us, %.2f times that\n",
                  algorithm, name(protocol), us, empty_us, us / empty_us);
    }
  }
}

}  // namespace
}  // namespace plexus::test
