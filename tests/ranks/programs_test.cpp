// SPDX-License-Identifier: Apache-2.0
// Algorithms from files (PLEXUS_PROGRAM_PATH) in real communicators: the samples of MSCCL's format
// give the results that the collectives are defined by, in both forms, at counts of one chunk, of
// many loops, and of none.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

using testing_job::Job;
using testing_job::value_of;

class ProgramsTest : public testing::TestWithParam<size_t> {
 protected:
  using Buffers = std::vector<std::vector<int32_t>>;

  void SetUp() override { setenv("PLEXUS_PROGRAM_PATH", PLEXUS_MSCCL_SAMPLES, 1); }
  void TearDown() override {
    unsetenv("PLEXUS_PROGRAM_PATH");
    unsetenv("NCCL_ALGO");
  }

  [[nodiscard]] static size_t count() { return GetParam(); }

  static Buffers inputs(int nranks, size_t size) {
    Buffers buffers(static_cast<size_t>(nranks));
    for (int rank = 0; rank < nranks; ++rank) {
      for (size_t i = 0; i < size; ++i) {
        buffers[static_cast<size_t>(rank)].push_back(static_cast<int32_t>(value_of(rank, i)));
      }
    }
    return buffers;
  }
  static int32_t sum_at(int nranks, size_t index) {
    int64_t sum = 0;
    for (int rank = 0; rank < nranks; ++rank) {
      sum += value_of(rank, index);
    }
    return static_cast<int32_t>(sum);
  }

  /// Twice in a group and once in threads, and checks that the file was used.
  static void run(const char* algorithm, int nranks, const Job::Body& body) {
    // pairwise, which is often the only algorithm for it, is excluded only by name of collective
    const std::string of_all_to_all = "alltoall:" + std::string(algorithm) + ";";
    setenv("NCCL_ALGO", (of_all_to_all + algorithm).c_str(), 1);
    Job job(nranks);
    job.run_in_group(body);
    job.run_in_group(body);
    for (const ncclResult_t result : job.run_in_threads(body)) {
      ASSERT_EQ(result, ncclSuccess) << ncclGetLastError(nullptr);
    }
    const char* used = "";
    const char* protocol = "";
    int channels = 0;
    ASSERT_EQ(plexusGetLastChoice(job.comm(0), &used, &protocol, &channels), ncclSuccess);
    EXPECT_STREQ(used, algorithm);
  }

  static void expect(const std::vector<int32_t>& output,
                     size_t size,
                     const std::function<int32_t(size_t)>& expected) {
    for (size_t i = 0; i < size; ++i) {
      ASSERT_EQ(output[i], expected(i)) << "element " << i;
    }
  }
};

TEST_P(ProgramsTest, RingAllReduce) {
  const Buffers in = inputs(4, count());
  Buffers out(4, std::vector<int32_t>(count(), -1));
  run("ring-allreduce", 4, [&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return ncclAllReduce(in[r].data(), out[r].data(), count(), ncclInt32, ncclSum, comm, nullptr);
  });
  for (const auto& output : out) {
    expect(output, count(), [](size_t i) { return sum_at(4, i); });
  }
}

TEST_P(ProgramsTest, RingAllReduceInPlaceAveragesThreeTimes) {
  Buffers data(4, std::vector<int32_t>(count()));
  for (size_t rank = 0; rank < 4; ++rank) {
    std::fill(data[rank].begin(), data[rank].end(), static_cast<int32_t>(8 * rank));
  }
  run("ring-allreduce", 4, [&](int rank, ncclComm_t comm) {
    auto* const buffer = data[static_cast<size_t>(rank)].data();
    return ncclAllReduce(buffer, buffer, count(), ncclInt32, ncclAvg, comm, nullptr);
  });
  for (const auto& output : data) {
    expect(output, count(), [](size_t) { return 12; });
  }
}

TEST_P(ProgramsTest, AllPairsThroughScratchThatLanesShare) {
  const Buffers in = inputs(4, count());
  Buffers out(4, std::vector<int32_t>(count(), -1));
  run("allpairs-allreduce", 4, [&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return ncclAllReduce(in[r].data(), out[r].data(), count(), ncclInt32, ncclSum, comm, nullptr);
  });
  for (const auto& output : out) {
    expect(output, count(), [](size_t i) { return sum_at(4, i); });
  }
}

TEST_P(ProgramsTest, DoublingAllGatherOutOfPlace) {
  const Buffers in = inputs(4, count());
  Buffers out(4, std::vector<int32_t>(4 * count(), -1));
  run("doubling-allgather", 4, [&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return ncclAllGather(in[r].data(), out[r].data(), count(), ncclInt32, comm, nullptr);
  });
  for (const auto& output : out) {
    expect(output, 4 * count(), [](size_t i) {
      return static_cast<int32_t>(value_of(static_cast<int>(i / count()), i % count()));
    });
  }
}

TEST_P(ProgramsTest, DoublingAllGatherInPlace) {
  Buffers out(4, std::vector<int32_t>(4 * count(), -1));
  for (size_t rank = 0; rank < 4; ++rank) {
    for (size_t i = 0; i < count(); ++i) {
      out[rank][rank * count() + i] = static_cast<int32_t>(value_of(static_cast<int>(rank), i));
    }
  }
  run("doubling-allgather", 4, [&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return ncclAllGather(out[r].data() + r * count(), out[r].data(), count(), ncclInt32, comm,
                         nullptr);
  });
  for (const auto& output : out) {
    expect(output, 4 * count(), [](size_t i) {
      return static_cast<int32_t>(value_of(static_cast<int>(i / count()), i % count()));
    });
  }
}

TEST_P(ProgramsTest, HierarchicalAllToAllOverTwoConnections) {
  const Buffers in = inputs(4, 4 * count());
  Buffers out(4, std::vector<int32_t>(4 * count(), -1));
  run("hierarchical-alltoall", 4, [&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return ncclAlltoAll(in[r].data(), out[r].data(), count(), ncclInt32, comm, nullptr);
  });
  for (size_t rank = 0; rank < 4; ++rank) {
    expect(out[rank], 4 * count(), [&](size_t i) {
      return static_cast<int32_t>(
          value_of(static_cast<int>(i / count()), rank * count() + i % count()));
    });
  }
}

TEST_P(ProgramsTest, DirectReduceScatterOverTwoConnectionsBetweenTheSameRanks) {
  const Buffers in = inputs(3, 3 * count());
  Buffers out(3, std::vector<int32_t>(count(), -1));
  run("direct-reduce-scatter", 3, [&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return ncclReduceScatter(in[r].data(), out[r].data(), count(), ncclInt32, ncclSum, comm,
                             nullptr);
  });
  for (size_t rank = 0; rank < 3; ++rank) {
    expect(out[rank], count(), [&](size_t i) { return sum_at(3, rank * count() + i); });
  }
}

TEST_P(ProgramsTest, TreeBroadcastFromItsRoot) {
  const Buffers in = inputs(1, count());
  Buffers out(6, std::vector<int32_t>(count(), -1));
  run("tree-broadcast", 6, [&](int rank, ncclComm_t comm) {
    return ncclBroadcast(rank == 0 ? in[0].data() : nullptr, out[static_cast<size_t>(rank)].data(),
                         count(), ncclInt32, 0, comm, nullptr);
  });
  for (const auto& output : out) {
    expect(output, count(), [&](size_t i) { return in[0][i]; });
  }
}

TEST_P(ProgramsTest, ChainReduceToItsRoot) {
  const Buffers in = inputs(3, count());
  std::vector<int32_t> out(count(), -1);
  run("chain-reduce", 3, [&](int rank, ncclComm_t comm) {
    return ncclReduce(in[static_cast<size_t>(rank)].data(), rank == 2 ? out.data() : nullptr,
                      count(), ncclInt32, ncclSum, 2, comm, nullptr);
  });
  expect(out, count(), [](size_t i) { return sum_at(3, i); });
}

INSTANTIATE_TEST_SUITE_P(Counts, ProgramsTest, testing::Values(8, 40, 12'000, 1'000'000));

TEST(Programs, ACallThatAFileDoesNotSuitSaysWhy) {
  setenv("PLEXUS_PROGRAM_PATH", PLEXUS_MSCCL_SAMPLES, 1);
  setenv("NCCL_ALGO", "ring-allreduce,chain-reduce", 1);
  std::vector<int32_t> data(16, 1);
  {
    Job job(4);
    EXPECT_EQ(ncclAllReduce(data.data(), data.data(), 7, ncclInt32, ncclSum, job.comm(0), nullptr),
              ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("its 4 chunks do not divide"));
  }
  Job job(3);
  EXPECT_EQ(ncclReduce(data.data(), data.data(), 8, ncclInt32, ncclSum, 1, job.comm(0), nullptr),
            ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("its file is for root 2"));
  unsetenv("PLEXUS_PROGRAM_PATH");
  unsetenv("NCCL_ALGO");
}

}  // namespace
}  // namespace plexus
