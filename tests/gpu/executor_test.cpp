// SPDX-License-Identifier: Apache-2.0
// The kernel on a GPU, compared bit by bit with the host executor.
#include <chrono>

#include <gtest/gtest.h>

#include "tests/gpu/calls.hpp"
#include "tests/gpu/gpu_world.hpp"

namespace plexus::test {
namespace {

void expect_host_bits(const Call& call, const GpuOptions& options = {}) {
  const std::vector<std::vector<std::byte>> wanted = run_on_host(call);
  ASSERT_EQ(wanted.size(), call.programs.size());
  GpuWorld world(call, options);
  for (size_t rank = 0; rank < wanted.size(); ++rank) {
    world.set_input(
        rank, make_input(call.type, world.buffer_bytes(), static_cast<uint32_t>(rank)).data());
  }
  world.run();
  for (size_t rank = 0; rank < wanted.size(); ++rank) {
    ASSERT_EQ(world.control(rank).stop, DeviceStop::kGoOn);
    ASSERT_EQ(world.output(rank), wanted[rank]) << "rank " << rank;
  }
}

class GpuEveryType : public testing::TestWithParam<DataType> {};

TEST_P(GpuEveryType, GivesTheHostsBitsForEveryReduction) {
  const DataType type = GetParam();
  const uint64_t third = is_floating(type) ? ReduceOp::scalar_bits_of(type, 1.0 / 3) : 3;
  for (const ReduceOp& op : {ReduceOp::plain(ReduceKind::kSum), ReduceOp::plain(ReduceKind::kProd),
                             ReduceOp::plain(ReduceKind::kMax), ReduceOp::plain(ReduceKind::kMin),
                             ReduceOp::average(type, 3), ReduceOp::premul_sum(third)}) {
    for (const char* const algorithm :
         {"ring_all_reduce", "tree_all_reduce", "all_pairs_all_reduce"}) {
      for (const Protocol protocol : kProtocols) {
        SCOPED_TRACE(testing::Message() << algorithm << " " << name(protocol) << " "
                                        << static_cast<int>(op.kind) << op.scales << op.divides);
        Call call = make_call(algorithm, 3, 40'003, protocol);
        call.type = type;
        call.op = op;
        expect_host_bits(call);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu,
                         GpuEveryType,
                         testing::Values(DataType::kInt8,
                                         DataType::kUint8,
                                         DataType::kInt32,
                                         DataType::kUint32,
                                         DataType::kInt64,
                                         DataType::kUint64,
                                         DataType::kFloat16,
                                         DataType::kFloat32,
                                         DataType::kFloat64,
                                         DataType::kBfloat16,
                                         DataType::kFloat8e4m3,
                                         DataType::kFloat8e5m2),
                         [](const auto& row) { return std::string(name(row.param)); });

TEST(Gpu, GivesTheHostsBitsForEveryAlgorithm) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.network_cost != nullptr || is_point_to_point(algorithm.collective)) {
      continue;  // a peer that is no rank; half of a pair
    }
    for (const Protocol protocol : kProtocols) {
      for (const bool by_address : {false, true}) {
        for (const int nranks : {2, 5, 8}) {
          SCOPED_TRACE(testing::Message() << algorithm.name << " " << name(protocol) << " "
                                          << nranks << (by_address ? " by address" : ""));
          expect_host_bits(make_call(algorithm.name, nranks, 30'001, protocol),
                           {.by_address = by_address});
        }
      }
    }
  }
}

TEST(Gpu, RunsSixtyFourRanksInOneLaunch) {
  for (const char* const algorithm : {"ring_all_reduce", "tree_all_reduce", "all_pairs_all_reduce",
                                      "ring_all_gather", "ring_reduce_scatter"}) {
    SCOPED_TRACE(algorithm);
    expect_host_bits(make_call(algorithm, 64, 5'003, Protocol::kSimple), {.threads = 128});
    expect_host_bits(make_call(algorithm, 64, 11, Protocol::kLL), {.threads = 128});
  }
}

TEST(Gpu, SplitsACallOverChannels) {
  expect_host_bits(make_call("ring_all_reduce", 2, 1 << 20, Protocol::kSimple),
                   {.threads = kDeviceThreadsMax, .channels = 16});
}

TEST(Gpu, RefusesMoreBlocksThanFit) {
  int error = 0;
  const uint32_t most = device_blocks_max(kDeviceThreadsMax, &error);
  ASSERT_EQ(error, 0);
  ASSERT_GT(most, 0U);
  GpuWorld world(make_call("ring_all_reduce", 2, 4096, Protocol::kSimple),
                 {.threads = kDeviceThreadsMax, .channels = most});
  EXPECT_THROW(world.run(), std::runtime_error);
  cudaGetLastError();  // clear the error for the next test
}

TEST(Gpu, NamesThePeerThatMadeAnotherCall) {
  for (const Protocol protocol : kProtocols) {
    GpuWorld world(make_call("all_pairs_reduce_scatter", 2, 100, protocol), {.by_address = false});
    world.set_hash(0, 99);
    world.run();
    EXPECT_EQ(world.control(1).stop, DeviceStop::kFailed);
    EXPECT_EQ(world.control(1).failure.fault, DeviceFault::kOtherCall);
    EXPECT_EQ(world.control(1).failure.peer, 0);
    EXPECT_EQ(world.control(1).failure.hash_arrived, 99U);
  }
}

TEST(Gpu, EndsWithinASecondWhenItIsAborted) {
  // The other rank is a host rank that never runs, so the kernel waits for ever.
  GpuWorld world(make_call("ring_all_reduce", 2, 1000, Protocol::kSimple),
                 {.by_address = false, .host_rank = 1});
  world.start(nullptr);
  ASSERT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
  const auto begin = std::chrono::steady_clock::now();
  for (size_t rank = 0; rank < 2; ++rank) {
    __atomic_store_n(&world.control(rank).stop, DeviceStop::kAborted, __ATOMIC_RELEASE);
  }
  check(cudaDeviceSynchronize(), "the aborted kernel");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

TEST(Gpu, TalksToAHostRankThroughPinnedMemory) {
  for (const char* const algorithm : {"ring_all_reduce", "tree_all_reduce"}) {
    for (const Protocol protocol : kProtocols) {
      SCOPED_TRACE(testing::Message() << algorithm << " " << name(protocol));
      expect_host_bits(make_call(algorithm, 3, 50'001, protocol),
                       {.by_address = false, .host_rank = 1});
    }
  }
}

}  // namespace
}  // namespace plexus::test
