// SPDX-License-Identifier: Apache-2.0
// Every collective on CUDA ranks: the sums are exact, so results are compared bit by bit.
#include <algorithm>
#include <filesystem>

#include "kernels/program/algorithms.hpp"
#include "tests/device/job.hpp"
#include "tests/device/shapes.hpp"

namespace plexus::testing_device {
namespace {

std::vector<Buffer<int32_t>> inputs_of(const Job& job, size_t count) {
  std::vector<Buffer<int32_t>> inputs;
  for (int rank = 0; rank < job.nranks(); ++rank) {
    std::vector<int32_t> values(count);
    for (size_t i = 0; i < count; ++i) {
      values[i] = value_of(rank, i);
    }
    inputs.emplace_back(job.device(rank), values);
  }
  return inputs;
}
std::vector<Buffer<int32_t>> outputs_of(const Job& job, size_t count) {
  std::vector<Buffer<int32_t>> outputs;
  for (int rank = 0; rank < job.nranks(); ++rank) {
    outputs.emplace_back(job.device(rank), count);
  }
  return outputs;
}
std::vector<int32_t> sums(int nranks, size_t count) {
  std::vector<int32_t> values(count);
  for (size_t i = 0; i < count; ++i) {
    for (int rank = 0; rank < nranks; ++rank) {
      values[i] += value_of(rank, i);
    }
  }
  return values;
}

void expect_all_reduce(Job& job, size_t count, bool in_threads) {
  const auto in = inputs_of(job, count);
  const auto out = outputs_of(job, count);
  const auto call = [&](int rank, ncclComm_t comm, DeviceStream stream) {
    const auto r = static_cast<size_t>(rank);
    return ncclAllReduce(in[r].data(), out[r].data(), count, ncclInt32, ncclSum, comm, stream);
  };
  if (in_threads) {
    EXPECT_THAT(job.run_in_threads(call), testing::Each(ncclSuccess)) << ncclGetLastError(nullptr);
  } else {
    job.run_in_group(call);
  }
  job.synchronize();
  for (const auto& output : out) {
    ASSERT_EQ(output.values(), sums(job.nranks(), count)) << count;
  }
}

TEST(DeviceRanks, KnowTheirDevice) {
  Job job({0, 1});
  for (int rank = 0; rank < 2; ++rank) {
    int device = -2;
    EXPECT_EQ(ncclCommCuDevice(job.comm(rank), &device), ncclSuccess);
    EXPECT_EQ(device, job.device(rank));
  }
}

TEST(DeviceRanks, AllReduceOfManySizesRepeats) {
  Job job({0, 0, 1});
  for (const size_t count : {size_t{1}, size_t{9}, size_t{1000}, size_t{40'000}, size_t{300'001}}) {
    expect_all_reduce(job, count, false);
    expect_all_reduce(job, count, false);
  }
}

TEST(DeviceRanks, AllReduceOfThreadsNeedsNoGroup) {
  Job job({0, 0, 1, 1});
  expect_all_reduce(job, 5000, true);
  expect_all_reduce(job, 100'000, true);
}

/// One call of `shape` on all ranks, checked.
void expect_shape(Job& job, const Shape& shape, size_t count, bool in_threads) {
  const size_t nranks = job.comm_count();
  const auto in = inputs_of(job, shape.in_count(count, nranks));
  const auto out = outputs_of(job, shape.out_count(count, nranks));
  const auto call = [&](int rank, ncclComm_t comm, DeviceStream stream) {
    const auto r = static_cast<size_t>(rank);
    return shape.call(in[r].data(), out[r].data(), count, comm, stream);
  };
  if (in_threads) {
    ASSERT_THAT(job.run_in_threads(call), testing::Each(ncclSuccess)) << ncclGetLastError(nullptr);
  } else {
    job.run_in_group(call);
  }
  job.synchronize();
  for (int rank = 0; rank < job.nranks(); ++rank) {
    if (shape.root_only && rank != kRoot) {
      continue;
    }
    ASSERT_EQ(out[static_cast<size_t>(rank)].values(),
              shape.expected_output(job.nranks(), rank, count))
        << shape.name << " of " << count << " on rank " << rank << " of " << nranks;
  }
}

class EveryCollective : public testing::TestWithParam<Shape> {};

TEST_P(EveryCollective, GivesTheRightResult) {
  Job job({0, 0, 1});
  for (const size_t count : {size_t{3}, size_t{700}, size_t{50'001}}) {
    expect_shape(job, GetParam(), count, false);
  }
}

TEST_P(EveryCollective, GivesTheRightResultToTwoFourAndEightRanks) {
  for (const size_t nranks : {2, 4, 8}) {
    for (const bool in_threads : {false, true}) {
      Job job(std::vector<int>(nranks, 0));
      expect_shape(job, GetParam(), 2'001, in_threads);
      expect_shape(job, GetParam(), 30'000, in_threads);
    }
  }
}

TEST(DeviceRanks, AllToAllInPlace) {
  const Shape& shape = *find_shape(Collective::kAllToAll);
  for (const char* const algorithm : {"alltoall:pairwise", "alltoall:bruck"}) {
    const Setting setting("NCCL_ALGO", algorithm);
    Job job({0, 0, 1});
    for (const size_t count : {size_t{5}, size_t{300'001}}) {
      const auto buffers = inputs_of(job, shape.in_count(count, job.comm_count()));
      job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
        int32_t* const data = buffers[static_cast<size_t>(rank)].data();
        return shape.call(data, data, count, comm, stream);
      });
      job.synchronize();
      for (int rank = 0; rank < job.nranks(); ++rank) {
        ASSERT_EQ(buffers[static_cast<size_t>(rank)].values(),
                  shape.expected_output(job.nranks(), rank, count))
            << algorithm << " of " << count << " on rank " << rank;
      }
    }
  }
}

TEST_P(EveryCollective, GivesTheRightResultToSixtyFourRanksOnOneDevice) {
  const Setting setting("NCCL_MAX_CTAS", "1");
  Job job(std::vector<int>(64, 0));
  expect_shape(job, GetParam(), 101, false);
}

INSTANTIATE_TEST_SUITE_P(DeviceRanks,
                         EveryCollective,
                         testing::ValuesIn(kShapes),
                         [](const auto& shape) { return std::string(shape.param.name); });

TEST(DeviceRanks, SpeakEveryAlgorithm) {
  for (const Algorithm& algorithm : algorithms()) {
    const Shape* const shape = find_shape(algorithm.collective);
    if (shape == nullptr || algorithm.network_cost != nullptr || algorithm.for_datacenters) {
      continue;  // half of a pair; a network's; made for datacenters
    }
    SCOPED_TRACE(algorithm.name);
    std::string wanted = fmt::format("{}:{}", shape->name, algorithm.family);
    wanted.erase(std::remove(wanted.begin(), wanted.end(), '_'), wanted.end());
    const Setting setting("NCCL_ALGO", wanted.c_str());
    Job job(std::vector<int>(4, 0));
    expect_shape(job, *shape, 20'001, false);
    const char* used = nullptr;
    ASSERT_EQ(plexusGetLastChoice(job.comm(0), &used, nullptr, nullptr), ncclSuccess);
    EXPECT_STREQ(used, algorithm.family);
  }
}

/// Programs with what the table's do not have: several connections between two ranks, waits for
/// several steps, local reductions, and scratch that lanes share over several loops.
TEST(DeviceRanks, SpeakAlgorithmsFromFiles) {
  const struct {
    const char* name;
    const char* setting;
    Collective collective;
    size_t nranks;
  } files[] = {
      {"ring-allreduce", "ring-allreduce", Collective::kAllReduce, 4},
      {"allpairs-allreduce", "allpairs-allreduce", Collective::kAllReduce, 4},
      {"doubling-allgather", "doubling-allgather", Collective::kAllGather, 4},
      {"direct-reduce-scatter", "direct-reduce-scatter", Collective::kReduceScatter, 3},
      {"hierarchical-alltoall", "alltoall:hierarchical-alltoall", Collective::kAllToAll, 4}};
  if (!std::filesystem::exists(PLEXUS_MSCCL_SAMPLES)) {
    GTEST_SKIP() << "the files are not on this machine: " << PLEXUS_MSCCL_SAMPLES;
  }
  const Setting path("PLEXUS_PROGRAM_PATH", PLEXUS_MSCCL_SAMPLES);
  for (const auto& file : files) {
    SCOPED_TRACE(file.name);
    const Setting setting("NCCL_ALGO", file.setting);
    const Setting one_channel("NCCL_MAX_CTAS", "1");  // a block for each lane
    Job job(std::vector<int>(file.nranks, 0));
    for (const size_t count : {size_t{8}, size_t{4'000}, size_t{400'000}}) {
      expect_shape(job, *find_shape(file.collective), count, false);
    }
    const char* used = nullptr;
    ASSERT_EQ(plexusGetLastChoice(job.comm(0), &used, nullptr, nullptr), ncclSuccess);
    EXPECT_STREQ(used, file.name);
  }
}

TEST(DeviceRanks, SpeakEveryProtocol) {
  for (const char* const protocol : {"LL", "LL128", "Simple"}) {
    const Setting setting("NCCL_PROTO", protocol);
    Job job({0, 0, 1});
    expect_all_reduce(job, 1, false);
    expect_all_reduce(job, 20'001, false);
    const char* used = nullptr;
    ASSERT_EQ(plexusGetLastChoice(job.comm(0), nullptr, &used, nullptr), ncclSuccess);
    EXPECT_STREQ(used, protocol);
  }
}

TEST(DeviceRanks, WorkThroughHostMemoryWhenDevicesMayNotMeet) {
  const Setting setting("NCCL_P2P_DISABLE", "1");
  Job job({0, 0, 1});
  expect_all_reduce(job, 100'000, false);
}

TEST(DeviceRanks, WorkWithoutReadingUserBuffersInPlace) {
  const Setting setting("NCCL_P2P_DIRECT_DISABLE", "1");
  Job job({0, 1});
  expect_all_reduce(job, 100'000, false);
}

TEST(DeviceRanks, AloneRankCopies) {
  Job job({1});
  expect_all_reduce(job, 777, false);
}

TEST(DeviceRanks, SendAndReceiveInAGroup) {
  Job job({0, 0, 1, 1});
  const auto in = inputs_of(job, 30'000);
  const auto out = outputs_of(job, 30'000);
  job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
    const auto r = static_cast<size_t>(rank);
    EXPECT_EQ(ncclSend(in[r].data(), 30'000, ncclInt32, (rank + 1) % 4, comm, stream), ncclSuccess);
    return ncclRecv(out[r].data(), 30'000, ncclInt32, (rank + 3) % 4, comm, stream);
  });
  job.synchronize();
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(out[rank].values(), in[(rank + 3) % 4].values());
  }
}

TEST(DeviceRanks, ChannelsShareALongMessageOverTheNetwork) {
  const OverNetwork over_network;
  const Setting channels("NCCL_NCHANNELS_PER_NET_PEER", "2");
  constexpr size_t kCount = 1'000'003;
  Job job({0, 0, 1});
  const auto in = inputs_of(job, kCount);
  const auto out = outputs_of(job, kCount);
  for (const size_t count : {kCount, size_t{10}, kCount}) {
    job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
      const auto r = static_cast<size_t>(rank);
      EXPECT_EQ(ncclSend(in[r].data(), count, ncclInt32, (rank + 1) % 3, comm, stream),
                ncclSuccess);
      return ncclRecv(out[r].data(), count, ncclInt32, (rank + 2) % 3, comm, stream);
    });
    job.synchronize();
    for (size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(out[rank].values(), in[(rank + 2) % 3].values());
    }
  }
}

TEST(DeviceRanks, AverageDividesAndMultipliersOfTheDeviceAreReadInOrder) {
  Job job({0, 0});
  std::vector<Buffer<float>> values;
  values.emplace_back(0, std::vector<float>{1, 2});
  values.emplace_back(0, std::vector<float>{3, 6});
  job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
    auto* const data = values[static_cast<size_t>(rank)].data();
    return ncclAllReduce(data, data, 2, ncclFloat32, ncclAvg, comm, stream);
  });
  job.synchronize();
  EXPECT_EQ(values[0].values(), (std::vector<float>{2, 4}));

  const Buffer<float> scalars(0, std::vector<float>{0, 0});
  const Buffer<float> ten(0, std::vector<float>{10});
  ncclRedOp_t ops[2];
  for (int rank = 0; rank < 2; ++rank) {
    float* const scalar = scalars.data() + rank;
    ASSERT_EQ(
        ncclRedOpCreatePreMulSum(&ops[rank], scalar, ncclFloat32, ncclScalarDevice, job.comm(rank)),
        ncclSuccess);
    machine().copy_in_order(job.stream(rank), scalar, ten.data(), sizeof(float));
  }
  job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
    auto* const data = values[static_cast<size_t>(rank)].data();
    return ncclAllReduce(data, data, 2, ncclFloat32, ops[rank], comm, stream);
  });
  job.synchronize();
  EXPECT_EQ(values[1].values(), (std::vector<float>{40, 80}));
}

/// Each rank's values are multiplied by `multiplier`, which lies on the device, then summed.
template <class T>
void expect_multiplied(Job& job, ncclDataType_t type, T multiplier) {
  const Buffer<T> scalar(0, std::vector<T>{multiplier});
  const Buffer<T> mine(0, std::vector<T>{T{1}, T{2}, T{3}});
  std::vector<Buffer<T>> sums;
  ncclRedOp_t ops[2];
  for (int rank = 0; rank < 2; ++rank) {
    sums.emplace_back(0, 3);
    ASSERT_EQ(
        ncclRedOpCreatePreMulSum(&ops[rank], scalar.data(), type, ncclScalarDevice, job.comm(rank)),
        ncclSuccess);
  }
  job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
    return ncclAllReduce(mine.data(), sums[static_cast<size_t>(rank)].data(), 3, type, ops[rank],
                         comm, stream);
  });
  job.synchronize();
  const auto two = static_cast<T>(2 * multiplier);
  const std::vector<T> wanted = {two, static_cast<T>(2 * two), static_cast<T>(3 * two)};
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(sums[static_cast<size_t>(rank)].values(), wanted) << "type " << type;
    EXPECT_EQ(ncclRedOpDestroy(ops[rank], job.comm(rank)), ncclSuccess);
  }
}

TEST(DeviceRanks, MultipliersOfTheDeviceHaveTheSizeOfTheirType) {
  Job job({0, 0});
  expect_multiplied<int8_t>(job, ncclInt8, -7);
  expect_multiplied<int32_t>(job, ncclInt32, 100'003);
  expect_multiplied<uint64_t>(job, ncclUint64, uint64_t{3} << 50);
  expect_multiplied<double>(job, ncclFloat64, 0.125);
}

TEST(DeviceGraphs, EachReplayReadsMultipliersAnew) {
  Job job({0, 0});
  const Buffer<float> scalar(0, std::vector<float>{2});
  const Buffer<float> mine(0, std::vector<float>{1});
  std::vector<Buffer<float>> sums;
  ncclRedOp_t ops[2];
  for (int rank = 0; rank < 2; ++rank) {
    sums.emplace_back(0, 1);
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&ops[rank], scalar.data(), ncclFloat32, ncclScalarDevice,
                                       job.comm(rank)),
              ncclSuccess);
  }
  machine().begin_capture(job.stream(0));
  job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream /*stream*/) {
    return ncclAllReduce(mine.data(), sums[static_cast<size_t>(rank)].data(), 1, ncclFloat32,
                         ops[rank], comm, job.stream(0));
  });
  const Graph graph = machine().end_capture(job.stream(0));
  for (const float multiplier : {2.0F, 5.0F, -1.0F}) {
    scalar.write({multiplier});
    machine().replay(graph, job.stream(0));
    machine().synchronize(job.stream(0));
    EXPECT_EQ(sums[0].value(), 2 * multiplier);
    EXPECT_EQ(sums[1].value(), 2 * multiplier);
  }
}

/// The launches of a captured all-reduce of all ranks of a device.
GraphShape shape_of_all_reduce(Job& job, size_t count) {
  const auto in = inputs_of(job, count);
  const auto out = outputs_of(job, count);
  machine().begin_capture(job.stream(0));
  job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream /*stream*/) {
    const auto r = static_cast<size_t>(rank);
    return ncclAllReduce(in[r].data(), out[r].data(), count, ncclInt32, ncclSum, comm,
                         job.stream(0));
  });
  return machine().shape_of(machine().end_capture(job.stream(0)));
}

TEST(DeviceRanks, AllReduceOnOneDeviceIsOneLaunch) {
  Job job({0, 0, 0, 0});
  EXPECT_EQ(shape_of_all_reduce(job, 1000).kernels, 1);
}

TEST(DeviceRanks, TakeTheWayThatSuitsADevice) {
  const std::string folder = std::getenv("PLEXUS_TEST_LIB_DIR");
  const Setting tuner("NCCL_TUNER_PLUGIN", (folder + "/libplexus-tuner-default.so").c_str());
  Job job({0, 0});  // the device's memory bandwidth is used by many channels
  const char* algorithm = nullptr;
  const char* protocol = nullptr;
  int channels = 0;
  expect_all_reduce(job, 4, false);
  ASSERT_EQ(plexusGetLastChoice(job.comm(0), &algorithm, &protocol, &channels), ncclSuccess);
  EXPECT_STREQ(protocol, "LL");  // lowest latency per hop
  EXPECT_EQ(channels, 1);
  EXPECT_EQ(shape_of_all_reduce(job, 4).threads, 128U);
  expect_all_reduce(job, 3'000'000, false);
  ASSERT_EQ(plexusGetLastChoice(job.comm(0), &algorithm, &protocol, &channels), ncclSuccess);
  EXPECT_STREQ(protocol, "Simple");  // highest bandwidth
  EXPECT_GT(channels, 1);
  EXPECT_EQ(shape_of_all_reduce(job, 3'000'000).threads, 256U);
}

TEST(DeviceRanks, GiveEverythingBack) {
  const auto use = [] {
    Job job({0, 1});
    expect_all_reduce(job, 10'000, false);
  };
  // Launch records (an event and a memory block each) are kept for later communicators, and CUDA
  // keeps what it allocates on first use.
  use();
  const size_t before = machine().taken();
  for (int i = 0; i < 5; ++i) {
    use();
  }
  EXPECT_LE(machine().taken(), before + 8);
}

}  // namespace
}  // namespace plexus::testing_device
