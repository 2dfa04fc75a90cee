// SPDX-License-Identifier: Apache-2.0
// Graphs by capture: copies, host functions and NCCL calls, replayed.
#include <atomic>
#include <cuda_runtime.h>
#include <nccl.h>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

#define OK(call) ASSERT_EQ(call, cudaSuccess) << #call

class Graphs : public testing::Test {
 protected:
  void SetUp() override {
    OK(cudaSetDevice(0));
    OK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking));
    OK(cudaEventCreate(&fork_));
    OK(cudaEventCreate(&join_));
    OK(cudaMallocManaged(&memory_, kCount * sizeof(int)));
    OK(cudaMemset(memory_, 0, kCount * sizeof(int)));
    OK(cudaStreamSynchronize(nullptr));
  }
  void TearDown() override {
    OK(cudaStreamDestroy(stream_));
    OK(cudaStreamDestroy(other_));
    OK(cudaEventDestroy(fork_));
    OK(cudaEventDestroy(join_));
    OK(cudaFree(memory_));
  }

  static void increment(void* counter) { ++*static_cast<int*>(counter); }

  static constexpr size_t kCount = 1000;
  cudaStream_t stream_ = nullptr;
  cudaStream_t other_ = nullptr;
  cudaEvent_t fork_ = nullptr;
  cudaEvent_t join_ = nullptr;
  int* memory_ = nullptr;
};

TEST_F(Graphs, DoNothingBeforeTheyAreLaunched) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  OK(cudaStreamGetCaptureInfo(stream_, &status, &id));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_NE(id, 0U);
  OK(cudaLaunchHostFunc(stream_, increment, memory_));
  OK(cudaMemcpyAsync(memory_ + 1, memory_, sizeof(int), cudaMemcpyDeviceToDevice, stream_));
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorStreamCaptureUnsupported);
  OK(cudaStreamEndCapture(stream_, &graph));
  OK(cudaStreamIsCapturing(stream_, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  OK(cudaStreamSynchronize(stream_));
  EXPECT_EQ(memory_[0], 0);
  size_t nodes = 0;
  OK(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 2U);
  OK(cudaGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  OK(cudaGraphDestroy(graph));
  EXPECT_EQ(cudaGraphDestroy(graph), cudaErrorInvalidValue);
  for (int launch = 1; launch <= 100; ++launch) {
    OK(cudaGraphLaunch(exec, launch % 2 == 0 ? stream_ : other_));  // one after the other still
  }
  OK(cudaStreamSynchronize(stream_));
  OK(cudaStreamSynchronize(other_));
  EXPECT_EQ(memory_[0], 100);
  EXPECT_EQ(memory_[1], 100);
  OK(cudaGraphExecDestroy(exec));
  EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaErrorInvalidValue);
}

TEST_F(Graphs, HaveBranchesThatJoin) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  OK(cudaLaunchHostFunc(stream_, increment, memory_));
  OK(cudaEventRecord(fork_, stream_));
  OK(cudaStreamWaitEvent(other_, fork_, 0));
  OK(cudaMemcpyAsync(memory_ + 1, memory_, sizeof(int), cudaMemcpyDefault, other_));
  OK(cudaEventRecord(join_, other_));
  OK(cudaMemcpyAsync(memory_ + 2, memory_, sizeof(int), cudaMemcpyDefault, stream_));
  OK(cudaStreamWaitEvent(stream_, join_, 0));
  OK(cudaMemcpyAsync(memory_ + 3, memory_ + 1, sizeof(int), cudaMemcpyDefault, stream_));
  OK(cudaStreamEndCapture(stream_, &graph));
  OK(cudaGraphInstantiate(&exec, graph, 0ULL));
  for (int launch = 1; launch <= 20; ++launch) {
    OK(cudaGraphLaunch(exec, stream_));
    OK(cudaStreamSynchronize(stream_));
    EXPECT_EQ(std::vector<int>(memory_, memory_ + 4), std::vector<int>(4, launch));
  }
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
}

TEST_F(Graphs, RefuseWhatCudaRefuses) {
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
            cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorIllegalState);
  OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
  EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
  OK(cudaEventRecord(fork_, stream_));
  EXPECT_EQ(cudaEventQuery(fork_), cudaErrorCapturedEvent);
  OK(cudaStreamWaitEvent(other_, fork_, 0));
  OK(cudaLaunchHostFunc(other_, increment, memory_));
  EXPECT_EQ(cudaStreamEndCapture(other_, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(cudaStreamWaitEvent(other_, fork_, 0), cudaErrorCapturedEvent);
  cudaStream_t blocking = nullptr;
  OK(cudaStreamCreate(&blocking));
  OK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeGlobal));
  EXPECT_EQ(cudaMemsetAsync(memory_, 0, 4, nullptr), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
  OK(cudaStreamDestroy(blocking));
}

/// As a program with one thread for all devices: a graph for each, captured in one group.
TEST_F(Graphs, RepeatNcclCallsOfAllDevices) {
  constexpr int kDevices = 4;
  ncclComm_t comms[kDevices] = {};
  cudaStream_t streams[kDevices] = {};
  float* buffers[kDevices] = {};
  cudaGraphExec_t execs[kDevices] = {};
  ASSERT_EQ(ncclCommInitAll(comms, kDevices, nullptr), ncclSuccess);
  for (int i = 0; i < kDevices; ++i) {
    OK(cudaSetDevice(i));
    OK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    OK(cudaMallocManaged(&buffers[i], kCount * sizeof(float)));
    std::fill(buffers[i], buffers[i] + kCount, 1.0F);
    OK(cudaStreamBeginCapture(streams[i], cudaStreamCaptureModeThreadLocal));
  }
  for (int call = 0; call < 2; ++call) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int i = 0; i < kDevices; ++i) {
      ASSERT_EQ(
          ncclAllReduce(buffers[i], buffers[i], kCount, ncclFloat, ncclSum, comms[i], streams[i]),
          ncclSuccess);
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  }
  for (int i = 0; i < kDevices; ++i) {
    cudaGraph_t graph = nullptr;
    OK(cudaStreamEndCapture(streams[i], &graph));
    OK(cudaGraphInstantiate(&execs[i], graph, 0ULL));
    OK(cudaGraphDestroy(graph));
    EXPECT_EQ(buffers[i][0], 1.0F);
  }
  for (int launch = 0; launch < 3; ++launch) {
    for (int i = 0; i < kDevices; ++i) {
      OK(cudaGraphLaunch(execs[i], streams[i]));
    }
  }
  for (int i = 0; i < kDevices; ++i) {
    OK(cudaStreamSynchronize(streams[i]));
    EXPECT_EQ(buffers[i][kCount - 1], 4096.0F);  // 4 to the 6th
  }
  for (ncclComm_t comm : comms) {
    ASSERT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
  EXPECT_NE(cudaGraphLaunch(execs[0], streams[0]), cudaSuccess);  // its communicator is gone
  for (int i = 0; i < kDevices; ++i) {
    OK(cudaGraphExecDestroy(execs[i]));
    OK(cudaStreamDestroy(streams[i]));
    OK(cudaFree(buffers[i]));
  }
}

}  // namespace
