// SPDX-License-Identifier: Apache-2.0
// Failures on CUDA ranks end in an error with a message on every rank in bounded time.
#include <chrono>
#include <future>

#include "tests/device/job.hpp"

namespace plexus::testing_device {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

ncclResult_t all_reduce(const Buffer<int32_t>& memory,
                        size_t count,
                        ncclComm_t comm,
                        DeviceStream stream) {
  return ncclAllReduce(memory.data(), memory.data(), count, ncclInt32, ncclSum, comm, stream);
}

/// Polls like a program would; returns the final state.
ncclResult_t await_error(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  const auto limit = steady_clock::now() + seconds(20);
  while (state == ncclSuccess && steady_clock::now() < limit) {
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    std::this_thread::yield();
  }
  return state;
}

TEST(DeviceFailure, CallsThatDifferEndOnAllRanksWithASentence) {
  Job job({0, 0, 1});
  const Buffer<int32_t> memory(0, 1000);
  // A rank that calls after the others have met gets the error at once.
  EXPECT_THAT(job.run_in_threads([&](int rank, ncclComm_t comm, DeviceStream stream) {
    return all_reduce(memory, rank == 0 ? 100 : 200, comm, stream);
  }),
              testing::Each(testing::AnyOf(ncclSuccess, ncclInvalidUsage)));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(await_error(job.comm(rank)), ncclInvalidUsage) << rank;
  }
  job.synchronize();
  EXPECT_EQ(all_reduce(memory, 100, job.comm(0), job.stream(0)), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("the ranks' calls differ"));
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("all_reduce(count "));
}

TEST(DeviceFailure, CountsThatDifferSoThatOneEndUsesFewerChannelsAreFound) {
  const OverNetwork over_network;
  const Setting channels("NCCL_NCHANNELS_PER_NET_PEER", "2");
  constexpr size_t kLong = 100'000;
  for (const size_t sent : {kLong, size_t{10}}) {
    Job job({0, 1});
    const Buffer<int32_t> source(0, kLong);
    const Buffer<int32_t> target(1, kLong);
    job.run_in_threads([&](int rank, ncclComm_t comm, DeviceStream stream) {
      return rank == 0 ? ncclSend(source.data(), sent, ncclInt32, 1, comm, stream)
                       : ncclRecv(target.data(), kLong + 10 - sent, ncclInt32, 0, comm, stream);
    });
    EXPECT_EQ(await_error(job.comm(1)), ncclInvalidUsage) << sent;
  }
}

/// CUDA_LAUNCH_BLOCKING=1: the first launch would wait for the second one for ever.
TEST(DeviceFailure, AGroupOverDevicesIsRefusedWhereLaunchesWait) {
  if (!machine().waits_in_launch() || machine().device_count() < 2) {
    GTEST_SKIP() << "launches return at once, or there is one device";
  }
  Job job({0, 1});
  const Buffer<int32_t> a(0, std::vector<int32_t>{1});
  const Buffer<int32_t> b(1, std::vector<int32_t>{2});
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(all_reduce(a, 1, job.comm(0), job.stream(0)), ncclSuccess);
  EXPECT_EQ(all_reduce(b, 1, job.comm(1), job.stream(1)), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("CUDA_LAUNCH_BLOCKING=1"));
}

TEST(DeviceFailure, AbortEndsAKernelThatWaitsForAPeer) {
  if (machine().waits_in_launch()) {
    GTEST_SKIP() << kWaitsInLaunch;
  }
  Job job({0, 1});
  const Buffer<int32_t> memory(0, 1000);
  ASSERT_EQ(all_reduce(memory, 1000, job.comm(0), job.stream(0)), ncclSuccess);
  const auto begin = steady_clock::now();
  EXPECT_EQ(ncclCommAbort(job.take(0)), ncclSuccess);
  EXPECT_LT(steady_clock::now() - begin, seconds(1));
  machine().synchronize(job.stream(0));  // the kernel has ended
  EXPECT_NE(await_error(job.comm(1)), ncclSuccess);
}

/// The kernel has not begun: other work is before it on the stream.
TEST(DeviceFailure, AbortReturnsSoonWhenTheStreamIsBusy) {
  if (machine().waits_in_launch()) {
    GTEST_SKIP() << kWaitsInLaunch;
  }
  Job job({0, 0});
  const Buffer<int32_t> memory(0, 1000);
  std::promise<void> release;
  machine().enqueue(job.stream(0), [released = release.get_future().share()] { released.wait(); });
  ASSERT_EQ(all_reduce(memory, 1000, job.comm(0), job.stream(0)), ncclSuccess);
  const auto begin = steady_clock::now();
  EXPECT_EQ(ncclCommAbort(job.take(0)), ncclSuccess);
  EXPECT_LT(steady_clock::now() - begin, seconds(1));
  release.set_value();
  machine().synchronize(job.stream(0));  // the kernel ran and found that it was stopped
}

TEST(DeviceFailure, AFailureIsSeenInAGraphThatNobodyWatches) {
  Job job({0, 0});
  const Buffer<int32_t> memory(0, 1000);
  std::vector<Graph> graphs;
  for (int rank = 0; rank < 2; ++rank) {
    const DeviceStream stream = job.stream(rank);
    machine().begin_capture(stream);
    ASSERT_EQ(all_reduce(memory, rank == 0 ? 10 : 20, job.comm(rank), stream), ncclSuccess);
    graphs.push_back(machine().end_capture(stream));
    machine().replay(graphs.back(), stream);
  }
  EXPECT_EQ(await_error(job.comm(0)), ncclInvalidUsage);
  EXPECT_EQ(await_error(job.comm(1)), ncclInvalidUsage);
  job.synchronize();
}

TEST(DeviceFailure, FinalizeAndDestroyWaitForWhatIsUnderWay) {
  if (machine().waits_in_launch()) {
    GTEST_SKIP() << kWaitsInLaunch;
  }
  const Buffer<int32_t> a(0, std::vector<int32_t>{1});
  const Buffer<int32_t> b(0, std::vector<int32_t>{1});
  Job job({0, 0});  // which waits in its end for rank 1, whom nobody else waits for
  std::promise<void> release;
  machine().enqueue(job.stream(0), [released = release.get_future().share()] { released.wait(); });
  job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
    return all_reduce(rank == 0 ? a : b, 1, comm, stream);
  });
  auto destroyed = std::async(std::launch::async, [&] { return ncclCommDestroy(job.take(0)); });
  EXPECT_EQ(destroyed.wait_for(milliseconds(20)), std::future_status::timeout);
  release.set_value();
  EXPECT_EQ(destroyed.get(), ncclSuccess);
  EXPECT_EQ(a.value(), 2);
}

}  // namespace
}  // namespace plexus::testing_device
