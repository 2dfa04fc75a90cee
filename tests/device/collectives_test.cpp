// SPDX-License-Identifier: Apache-2.0
// Every collective on CUDA ranks: the sums are exact, so results are compared bit by bit.
#include "tests/device/job.hpp"

namespace plexus::testing_device {
namespace {

/// Small whole numbers, different for every rank and place.
int32_t value_of(int rank, size_t index) {
  return static_cast<int32_t>((index * 7 + static_cast<size_t>(rank) * 3) % 11) + 1;
}

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
    EXPECT_EQ(device, rank);
  }
}

TEST(DeviceRanks, AllReduceOnOneDeviceIsOneLaunch) {
  Job job({0, 0, 0, 0});
  const int before = devices().launches();
  expect_all_reduce(job, 1000, false);
  EXPECT_EQ(devices().launches(), before + 1);
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

/// Out of place, in a group, with `blocks_in` and `blocks_out` blocks of `count` in the buffers.
struct Shape {
  const char* name;
  bool many_in;
  bool many_out;
  ncclResult_t (*call)(
      const int32_t* in, int32_t* out, size_t count, ncclComm_t comm, DeviceStream stream);
  /// Element i of block b of rank r's output.
  int32_t (*expected)(int nranks, int rank, size_t block, size_t i, size_t count);
  bool root_only;
};
constexpr int kRoot = 1;
const Shape kShapes[] = {
    {"broadcast", false, false,
     [](const int32_t* in, int32_t* out, size_t count, ncclComm_t comm, DeviceStream stream) {
       return ncclBroadcast(in, out, count, ncclInt32, kRoot, comm, stream);
     },
     [](int, int, size_t, size_t i, size_t) { return value_of(kRoot, i); }, false},
    {"reduce", false, false,
     [](const int32_t* in, int32_t* out, size_t count, ncclComm_t comm, DeviceStream stream) {
       return ncclReduce(in, out, count, ncclInt32, ncclMax, kRoot, comm, stream);
     },
     [](int nranks, int, size_t, size_t i, size_t) {
       int32_t most = 0;
       for (int rank = 0; rank < nranks; ++rank) {
         most = std::max(most, value_of(rank, i));
       }
       return most;
     },
     true},
    {"all_gather", false, true,
     [](const int32_t* in, int32_t* out, size_t count, ncclComm_t comm, DeviceStream stream) {
       return ncclAllGather(in, out, count, ncclInt32, comm, stream);
     },
     [](int, int, size_t block, size_t i, size_t) { return value_of(static_cast<int>(block), i); },
     false},
    {"reduce_scatter", true, false,
     [](const int32_t* in, int32_t* out, size_t count, ncclComm_t comm, DeviceStream stream) {
       return ncclReduceScatter(in, out, count, ncclInt32, ncclSum, comm, stream);
     },
     [](int nranks, int rank, size_t, size_t i, size_t count) {
       int32_t sum = 0;
       for (int other = 0; other < nranks; ++other) {
         sum += value_of(other, static_cast<size_t>(rank) * count + i);
       }
       return sum;
     },
     false},
    {"alltoall", true, true,
     [](const int32_t* in, int32_t* out, size_t count, ncclComm_t comm, DeviceStream stream) {
       return ncclAlltoAll(in, out, count, ncclInt32, comm, stream);
     },
     [](int, int rank, size_t block, size_t i, size_t count) {
       return value_of(static_cast<int>(block), static_cast<size_t>(rank) * count + i);
     },
     false},
    {"gather", false, true,
     [](const int32_t* in, int32_t* out, size_t count, ncclComm_t comm, DeviceStream stream) {
       return ncclGather(in, out, count, ncclInt32, kRoot, comm, stream);
     },
     [](int, int, size_t block, size_t i, size_t) { return value_of(static_cast<int>(block), i); },
     true},
    {"scatter", true, false,
     [](const int32_t* in, int32_t* out, size_t count, ncclComm_t comm, DeviceStream stream) {
       return ncclScatter(in, out, count, ncclInt32, kRoot, comm, stream);
     },
     [](int, int rank, size_t, size_t i, size_t count) {
       return value_of(kRoot, static_cast<size_t>(rank) * count + i);
     },
     false},
};

class EveryCollective : public testing::TestWithParam<Shape> {};

TEST_P(EveryCollective, GivesTheRightResult) {
  const Shape& shape = GetParam();
  Job job({0, 0, 1});
  const auto nranks = static_cast<size_t>(job.nranks());
  for (const size_t count : {size_t{3}, size_t{700}, size_t{50'001}}) {
    const auto in = inputs_of(job, count * (shape.many_in ? nranks : 1));
    const auto out = outputs_of(job, count * (shape.many_out ? nranks : 1));
    job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
      const auto r = static_cast<size_t>(rank);
      return shape.call(in[r].data(), out[r].data(), count, comm, stream);
    });
    job.synchronize();
    for (int rank = 0; rank < job.nranks(); ++rank) {
      if (shape.root_only && rank != kRoot) {
        continue;
      }
      std::vector<int32_t> expected;
      for (size_t block = 0; block < (shape.many_out ? nranks : 1); ++block) {
        for (size_t i = 0; i < count; ++i) {
          expected.push_back(shape.expected(job.nranks(), rank, block, i, count));
        }
      }
      ASSERT_EQ(out[static_cast<size_t>(rank)].values(), expected) << count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DeviceRanks,
                         EveryCollective,
                         testing::ValuesIn(kShapes),
                         [](const auto& shape) { return std::string(shape.param.name); });

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
  ncclRedOp_t ops[2];
  for (int rank = 0; rank < 2; ++rank) {
    float* const scalar = scalars.data() + rank;
    ASSERT_EQ(
        ncclRedOpCreatePreMulSum(&ops[rank], scalar, ncclFloat32, ncclScalarDevice, job.comm(rank)),
        ncclSuccess);
    devices().enqueue(job.stream(rank), [scalar] { *scalar = 10; });  // before the call runs
  }
  job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
    auto* const data = values[static_cast<size_t>(rank)].data();
    return ncclAllReduce(data, data, 2, ncclFloat32, ops[rank], comm, stream);
  });
  job.synchronize();
  EXPECT_EQ(values[1].values(), (std::vector<float>{40, 80}));
}

TEST(DeviceRanks, TakeTheWayThatSuitsADevice) {
  const std::string folder = std::getenv("PLEXUS_TEST_LIB_DIR");
  const Setting tuner("NCCL_TUNER_PLUGIN", (folder + "/libplexus-tuner-default.so").c_str());
  Job job({0, 0});  // the memory of one device carries many channels
  const char* algorithm = nullptr;
  const char* protocol = nullptr;
  int channels = 0;
  expect_all_reduce(job, 4, false);
  ASSERT_EQ(plexusGetLastChoice(job.comm(0), &algorithm, &protocol, &channels), ncclSuccess);
  EXPECT_STREQ(protocol, "LL");  // the fewest microseconds per hop
  EXPECT_EQ(channels, 1);
  EXPECT_EQ(devices().threads_last(), 128U);
  expect_all_reduce(job, 3'000'000, false);
  ASSERT_EQ(plexusGetLastChoice(job.comm(0), &algorithm, &protocol, &channels), ncclSuccess);
  EXPECT_STREQ(protocol, "Simple");  // the most bytes
  EXPECT_GT(channels, 1);
  EXPECT_EQ(devices().threads_last(), 512U);
}

TEST(DeviceRanks, GiveEverythingBack) {
  const size_t before = devices().live();
  {
    Job job({0, 1});
    expect_all_reduce(job, 10'000, false);
  }
  // Records of launches stay for the next communicator: an event and a block of memory each.
  EXPECT_LE(devices().live(), before + 8);
}

}  // namespace
}  // namespace plexus::testing_device
