// SPDX-License-Identifier: Apache-2.0
// A program that was compiled for per-thread default streams: NULL is the thread's, and does not
// wait for those of other threads.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1
#include <atomic>
#include <cuda_runtime.h>
#include <thread>

#include <gtest/gtest.h>

namespace {

#define OK(call) ASSERT_EQ(call, cudaSuccess) << #call

TEST(PerThreadStreams, DoNotWaitForEachOther) {
  std::atomic<bool> is_open{false};
  std::atomic<bool> is_launched{false};
  std::thread other([&] {
    EXPECT_EQ(cudaLaunchHostFunc(
                  nullptr, [](void* gate) { static_cast<std::atomic<bool>*>(gate)->wait(false); },
                  &is_open),
              cudaSuccess);
    EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
    is_launched.store(true);
    is_launched.notify_all();
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  });
  is_launched.wait(false);
  int* memory = nullptr;
  OK(cudaMalloc(&memory, sizeof(int)));
  OK(cudaMemset(memory, 1, sizeof(int)));
  int value = 0;
  OK(cudaMemcpy(&value, memory, sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT_EQ(value, 0x01010101);
  EXPECT_EQ(cudaStreamQuery(nullptr), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);  // that one waits for all
  is_open.store(true);
  is_open.notify_all();
  other.join();
  OK(cudaFree(memory));
}

}  // namespace
