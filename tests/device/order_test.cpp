// SPDX-License-Identifier: Apache-2.0
// CUDA ranks and streams: calls return at once, run in the order of the streams and of the
// communicator, and can be captured in graphs.
#include <atomic>
#include <memory>

#include "tests/device/job.hpp"

namespace plexus::testing_device {
namespace {

/// Keeps a stream busy until it is opened.
class Gate {
 public:
  explicit Gate(DeviceStream stream) {
    machine().enqueue(stream, [open = open_] { open->wait(false); });
  }
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open() {
    *open_ = true;
    open_->notify_all();
  }

 private:
  // Shared ownership, because the stream's thread reads it once more after the gate is destroyed.
  std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

ncclResult_t add_up(int32_t* data, ncclComm_t comm, DeviceStream stream) {
  return ncclAllReduce(data, data, 1, ncclInt32, ncclSum, comm, stream);
}

TEST(DeviceStreams, CallsReturnBeforeTheStreamGetsThere) {
  if (machine().waits_in_launch()) {
    GTEST_SKIP() << kWaitsInLaunch;
  }
  Job job({0, 0});
  const Buffer<int32_t> a(0, std::vector<int32_t>{1});
  const Buffer<int32_t> b(0, std::vector<int32_t>{1});
  const Buffer<int32_t> one(0, std::vector<int32_t>{1});
  Gate gate(job.stream(1));
  // more than the number of plans that a communicator keeps
  for (int repeat = 0; repeat < 80; ++repeat) {
    job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
      return add_up((rank == 0 ? a : b).data(), comm, stream);
    });
    if (repeat % 20 == 19) {
      for (const Buffer<int32_t>* const buffer : {&a, &b}) {
        machine().copy_in_order(job.stream(0), buffer->data(), one.data(), sizeof(int32_t));
      }
    }
  }
  EXPECT_EQ(a.value(), 1);
  gate.open();
  job.synchronize();
  EXPECT_EQ(a.value(), 1);
  EXPECT_EQ(b.value(), 1);
}

TEST(DeviceStreams, CallsOfOneCommunicatorKeepTheirOrderOnDifferentStreams) {
  if (machine().waits_in_launch()) {
    GTEST_SKIP() << kWaitsInLaunch;
  }
  Job job({0});
  const Buffer<int32_t> from(0, std::vector<int32_t>{7});
  const Buffer<int32_t> between(0, std::vector<int32_t>{0});
  const Buffer<int32_t> to(0, std::vector<int32_t>{0});
  const DeviceStream second = machine().make_stream(job.device(0));
  {
    Gate gate(job.stream(0));
    ASSERT_EQ(ncclAllReduce(from.data(), between.data(), 1, ncclInt32, ncclSum, job.comm(0),
                            job.stream(0)),
              ncclSuccess);
    ASSERT_EQ(ncclAllReduce(between.data(), to.data(), 1, ncclInt32, ncclSum, job.comm(0), second),
              ncclSuccess);
    EXPECT_EQ(to.value(), 0);
  }
  machine().synchronize(second);
  EXPECT_EQ(to.value(), 7);
  machine().destroy_stream(second);
}

TEST(DeviceStreams, EveryStreamOfAGroupWaitsForTheLaunch) {
  if (machine().waits_in_launch()) {
    GTEST_SKIP() << kWaitsInLaunch;
  }
  Job job({0, 0});
  const Buffer<int32_t> a(0, std::vector<int32_t>{1});
  const Buffer<int32_t> b(0, std::vector<int32_t>{2});
  Gate gate(job.stream(0));
  job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
    return add_up((rank == 0 ? a : b).data(), comm, stream);
  });
  const Buffer<int32_t> seen(0, 1);
  machine().copy_in_order(job.stream(1), seen.data(), b.data(), sizeof(int32_t));
  gate.open();
  machine().synchronize(job.stream(1));
  EXPECT_EQ(seen.value(), 3);
}

TEST(DeviceStreams, NullIsTheDefaultStream) {
  Job job({0});
  const Buffer<int32_t> from(0, std::vector<int32_t>{5});
  const Buffer<int32_t> to(0, std::vector<int32_t>{0});
  ASSERT_EQ(ncclAllReduce(from.data(), to.data(), 1, ncclInt32, ncclSum, job.comm(0), nullptr),
            ncclSuccess);
  machine().synchronize(nullptr);
  EXPECT_EQ(to.value(), 5);
}

TEST(DeviceStreams, AStreamForHostRanksIsRefused) {
  Job job({0});
  cudaStream_t stream = nullptr;
  ASSERT_EQ(plexusStreamCreate(&stream), ncclSuccess);
  const Buffer<int32_t> memory(0, 1);
  EXPECT_EQ(add_up(memory.data(), job.comm(0), stream), ncclInvalidArgument);
  EXPECT_EQ(plexusStreamDestroy(stream), ncclSuccess);
}

TEST(DeviceGraphs, CapturedCallsRunAtEachReplay) {
  Job job({0, 0});
  const Buffer<int32_t> a(0, std::vector<int32_t>{1});
  const Buffer<int32_t> b(0, std::vector<int32_t>{1});
  const auto call = [&](int rank, ncclComm_t comm, DeviceStream /*stream*/) {
    return add_up((rank == 0 ? a : b).data(), comm, job.stream(0));
  };
  machine().begin_capture(job.stream(0));
  job.run_in_group(call);
  job.run_in_group(call);
  const auto graph = machine().end_capture(job.stream(0));
  EXPECT_EQ(a.value(), 1);
  for (int replay = 0; replay < 3; ++replay) {
    machine().replay(graph, job.stream(0));
  }
  job.run_in_group(call);  // after them in stream order, like any other call
  job.synchronize();
  EXPECT_EQ(a.value(), 128);
  EXPECT_EQ(b.value(), 128);
}

/// One thread calls the host functions of both ranks' replays: none may wait for the other rank.
TEST(DeviceGraphs, ReplaysOfARootGoAheadOverANetwork) {
  const OverNetwork network;
  Job job({0, 0});
  constexpr size_t kCount = 250'000;
  constexpr int kReplays = 20;
  const Buffer<int32_t> a(0, std::vector<int32_t>(kCount, 1));
  const Buffer<int32_t> b(0, std::vector<int32_t>(kCount, 0));
  const auto broadcast = [&](int rank, ncclComm_t comm, DeviceStream stream) {
    int32_t* const data = (rank == 0 ? a : b).data();
    return ncclBroadcast(data, data, kCount, ncclInt32, 0, comm, stream);
  };
  EXPECT_THAT(job.run_in_threads(broadcast), testing::Each(ncclSuccess));  // connects
  job.synchronize();
  Graph graphs[2];  // made one after the other: a capture forbids other threads to make theirs
  for (int rank = 0; rank < 2; ++rank) {
    machine().begin_capture(job.stream(rank));
    EXPECT_EQ(broadcast(rank, job.comm(rank), job.stream(rank)), ncclSuccess);
    graphs[rank] = machine().end_capture(job.stream(rank));
  }
  for (int rank = 0; rank < 2; ++rank) {
    for (int replay = 0; replay < kReplays; ++replay) {
      machine().replay(graphs[rank], job.stream(rank));
    }
  }
  job.synchronize();
  EXPECT_EQ(b.values(), a.values());
}

/// They share connections and barriers: neither may begin before the other has ended.
TEST(DeviceGraphs, ReplaysAndCallsOnOtherStreamsKeepTheirOrder) {
  if (machine().waits_in_launch()) {
    GTEST_SKIP() << kWaitsInLaunch;
  }
  Job job({0, 0});
  const Buffer<int32_t> a(0, std::vector<int32_t>{1});
  const Buffer<int32_t> b(0, std::vector<int32_t>{1});
  const auto call_on = [&](DeviceStream stream) {
    job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream /*own*/) {
      return add_up((rank == 0 ? a : b).data(), comm, stream);
    });
  };
  machine().begin_capture(job.stream(0));
  call_on(job.stream(0));
  call_on(job.stream(0));
  const auto graph = machine().end_capture(job.stream(0));
  const Buffer<int32_t> seen(0, 1);
  {
    Gate gate(job.stream(0));
    machine().replay(graph, job.stream(0));
    call_on(job.stream(1));
    machine().copy_in_order(job.stream(1), seen.data(), a.data(), sizeof(int32_t));
    gate.open();
    machine().synchronize(job.stream(1));
  }
  EXPECT_EQ(seen.value(), 8);
  {
    Gate gate(job.stream(1));
    call_on(job.stream(1));
    machine().replay(graph, job.stream(0));
    machine().copy_in_order(job.stream(0), seen.data(), b.data(), sizeof(int32_t));
    gate.open();
    machine().synchronize(job.stream(0));
  }
  EXPECT_EQ(seen.value(), 64);
  job.synchronize();
}

TEST(DeviceGraphs, TheStreamsOfACommunicatorsCallsBelongToOneGraph) {
  Job job({0, 0});
  const Buffer<int32_t> a(0, std::vector<int32_t>{1});
  machine().begin_capture(job.stream(0));
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(add_up(a.data(), job.comm(rank), job.stream(0)), ncclSuccess);
    ASSERT_EQ(add_up(a.data(), job.comm(rank), job.stream(1)), ncclSuccess);
  }
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("only some of them are"));
  for (int rank = 0; rank < 2; ++rank) {  // peers wait for the call: they must hear of it
    ncclResult_t state = ncclSuccess;
    ASSERT_EQ(ncclCommGetAsyncError(job.comm(rank), &state), ncclSuccess);
    EXPECT_EQ(state, ncclInvalidUsage);
  }
  machine().end_capture(job.stream(0));
}

// As nccl-tests do with -G: a capture on the stream of each rank.
TEST(DeviceGraphs, EachRankOfAGroupMayHaveAGraphOfItsOwn) {
  if (machine().waits_in_launch()) {
    GTEST_SKIP() << kWaitsInLaunch;
  }
  constexpr int kRanks = 4;
  Job job(std::vector<int>(kRanks, 0));
  std::vector<Buffer<int32_t>> data;
  for (int rank = 0; rank < kRanks; ++rank) {
    data.emplace_back(0, std::vector<int32_t>{rank + 1});
    machine().begin_capture(job.stream(rank));
  }
  job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
    return add_up(data[static_cast<size_t>(rank)].data(), comm, stream);
  });
  std::vector<Graph> graphs;
  for (int rank = 0; rank < kRanks; ++rank) {
    graphs.push_back(machine().end_capture(job.stream(rank)));
  }
  EXPECT_EQ(data[0].value(), 1);  // nothing has run
  for (int replay = 0; replay < 2; ++replay) {
    for (int rank = 0; rank < kRanks; ++rank) {
      machine().replay(graphs[static_cast<size_t>(rank)], job.stream(rank));
    }
  }
  job.synchronize();
  for (const Buffer<int32_t>& each : data) {
    EXPECT_EQ(each.value(), 10 * kRanks);
  }
}

}  // namespace
}  // namespace plexus::testing_device
