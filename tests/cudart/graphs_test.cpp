// SPDX-License-Identifier: Apache-2.0
// Graphs by capture (copies, host functions and NCCL calls, replayed) and node by node.
#include <atomic>
#include <cuda_runtime.h>
#include <nccl.h>
#include <random>
#include <string>
#include <utility>
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

// ---- node by node ----

/// A host node writes down when it was called.
struct Called {
  std::atomic<int>* clock;
  int at = 0;
  static void note(void* user) {
    auto& called = *static_cast<Called*>(user);
    called.at = ++*called.clock;
  }
};

TEST_F(Graphs, OfNodesKeepTheirDependencies) {
  constexpr size_t kNodes = 40;
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    cudaGraph_t graph = nullptr;
    OK(cudaGraphCreate(&graph, 0));
    std::atomic<int> clock{0};
    std::vector<Called> called(kNodes, Called{&clock});
    std::vector<cudaGraphNode_t> nodes;
    std::vector<std::pair<size_t, size_t>> edges;
    for (size_t i = 0; i < kNodes; ++i) {
      std::vector<cudaGraphNode_t> after;
      for (size_t before = 0; before < i; ++before) {
        if (random() % 10 == 0) {
          after.push_back(nodes[before]);
          edges.emplace_back(before, i);
        }
      }
      const cudaHostNodeParams wish{Called::note, &called[i]};
      nodes.push_back(nullptr);
      OK(cudaGraphAddHostNode(&nodes[i], graph, after.data(), after.size(), &wish));
    }
    // An edge that is added later, from a later node to an earlier one that nothing leads from.
    OK(cudaGraphAddEmptyNode(&nodes.emplace_back(), graph, nullptr, 0));
    OK(cudaGraphAddDependencies(graph, &nodes[kNodes], &nodes[0], nullptr, 1));
    cudaGraphExec_t exec = nullptr;
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, stream_));
    OK(cudaStreamSynchronize(stream_));
    for (const Called& each : called) {
      EXPECT_NE(each.at, 0);
    }
    for (const auto& [before, after] : edges) {
      EXPECT_LT(called[before].at, called[after].at) << before << " " << after;
    }
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
  }
}

TEST_F(Graphs, OfNodesCopySetAndHaveChildren) {
  cudaGraph_t child = nullptr;
  OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
  OK(cudaLaunchHostFunc(stream_, increment, memory_));
  OK(cudaStreamEndCapture(stream_, &child));
  cudaGraph_t graph = nullptr;
  OK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t set = nullptr;
  cudaGraphNode_t count = nullptr;
  cudaGraphNode_t copy = nullptr;
  const cudaMemsetParams zeros{memory_, 0, 0, sizeof(int), 10, 1};
  OK(cudaGraphAddMemsetNode(&set, graph, nullptr, 0, &zeros));
  OK(cudaGraphAddChildGraphNode(&count, graph, &set, 1, child));
  OK(cudaGraphAddMemcpyNode1D(&copy, graph, &count, 1, memory_ + 1, memory_, sizeof(int),
                              cudaMemcpyDeviceToDevice));
  size_t nodes = 0;
  OK(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 3U);
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  OK(cudaGraphNodeGetType(copy, &type));
  EXPECT_EQ(type, cudaGraphNodeTypeMemcpy);
  OK(cudaGraphDestroy(child));  // which the graph does not need any more
  cudaGraphExec_t exec = nullptr;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  for (int launch = 0; launch < 2; ++launch) {
    OK(cudaMemset(memory_, 7, kCount * sizeof(int)));
    OK(cudaStreamSynchronize(nullptr));
    OK(cudaGraphLaunch(exec, stream_));
    OK(cudaStreamSynchronize(stream_));
    EXPECT_EQ(memory_[0], 1);
    EXPECT_EQ(memory_[1], 1);
    EXPECT_EQ(memory_[2], 0);
  }
  const cudaMemsetParams odd{memory_, 0, 0x01020304, sizeof(int), 10, 1};
  EXPECT_EQ(cudaGraphAddMemsetNode(&set, graph, nullptr, 0, &odd), cudaErrorNotSupported);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
}

TEST_F(Graphs, OfNodesInACircleAreRefused) {
  cudaGraph_t graph = nullptr;
  OK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t nodes[2] = {};
  OK(cudaGraphAddEmptyNode(&nodes[0], graph, nullptr, 0));
  OK(cudaGraphAddEmptyNode(&nodes[1], graph, &nodes[0], 1));
  OK(cudaGraphAddDependencies(graph, &nodes[1], &nodes[0], nullptr, 1));
  cudaGraphExec_t exec = nullptr;
  EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaErrorInvalidValue);
  cudaGraph_t other = nullptr;
  OK(cudaGraphCreate(&other, 0));
  cudaGraphNode_t node = nullptr;
  EXPECT_EQ(cudaGraphAddEmptyNode(&node, other, &nodes[0], 1), cudaErrorInvalidValue);
  OK(cudaGraphDestroy(graph));
  OK(cudaGraphDestroy(other));
}

}  // namespace
