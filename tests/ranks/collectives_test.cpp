// SPDX-License-Identifier: Apache-2.0
// Every collective, with ranks driven by one thread and by a thread each, at counts around the
// limits of chunks and slots. The expected values follow from the definition of the collective.
#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

using testing_job::Job;
using testing_job::value_of;

enum class Mode { kGroup, kThreads };

struct Case {
  Mode mode;
  int nranks;
  size_t count;
  const char* algorithms = "";  // as NCCL_ALGO takes them
  const char* channels = "";    // as NCCL_MIN_CTAS takes them
  const char* protocols = "";   // as NCCL_PROTO takes them
};

std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string name = std::string(info.param.mode == Mode::kGroup ? "group" : "threads") + "_" +
                     std::to_string(info.param.nranks) + "_ranks_" +
                     std::to_string(info.param.count) + info.param.channels + "_" +
                     info.param.algorithms + info.param.protocols;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

class CollectivesTest : public testing::TestWithParam<Case> {
 protected:
  using Buffers = std::vector<std::vector<int32_t>>;

  [[nodiscard]] static size_t n() { return static_cast<size_t>(GetParam().nranks); }
  [[nodiscard]] static size_t count() { return GetParam().count; }

  /// [nranks][blocks * count], filled with value_of, and guards behind.
  static Buffers inputs(size_t blocks) {
    Buffers buffers(n());
    for (size_t rank = 0; rank < n(); ++rank) {
      buffers[rank].resize(blocks * count());
      for (size_t i = 0; i < buffers[rank].size(); ++i) {
        buffers[rank][i] = static_cast<int32_t>(value_of(static_cast<int>(rank), i));
      }
    }
    return buffers;
  }
  static Buffers outputs(size_t blocks) {
    return Buffers(n(), std::vector<int32_t>(blocks * count() + 1, -77));
  }

  void run(const Job::Body& body) {
    setenv("NCCL_ALGO", GetParam().algorithms, 1);
    setenv("NCCL_PROTO", GetParam().protocols, 1);
    setenv("NCCL_MIN_CTAS", GetParam().channels, 1);
    Job job(GetParam().nranks);
    for (int repeat = 0; repeat < 2; ++repeat) {  // the second time the plan is cached
      if (GetParam().mode == Mode::kGroup) {
        job.run_in_group(body);
      } else {
        for (const ncclResult_t result : job.run_in_threads(body)) {
          ASSERT_EQ(result, ncclSuccess) << ncclGetLastError(nullptr);
        }
      }
    }
  }

  void TearDown() override {
    unsetenv("NCCL_ALGO");
    unsetenv("NCCL_MIN_CTAS");
    unsetenv("NCCL_PROTO");
  }

  static int32_t sum_at(size_t index) {
    int32_t sum = 0;
    for (size_t rank = 0; rank < n(); ++rank) {
      sum += static_cast<int32_t>(value_of(static_cast<int>(rank), index));
    }
    return sum;
  }

  /// Expects output == expected(index) for the first `size` elements, and an unchanged guard.
  template <class Expected>
  static void expect(const std::vector<int32_t>& output, size_t size, const Expected& expected) {
    for (size_t i = 0; i < size; ++i) {
      ASSERT_EQ(output[i], expected(i)) << "element " << i;
    }
    ASSERT_EQ(output.back(), -77) << "wrote behind the buffer";
  }
};

TEST_P(CollectivesTest, AllReduceSumsEverywhere) {
  const Buffers in = inputs(1);
  Buffers out = outputs(1);
  run([&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return ncclAllReduce(in[r].data(), out[r].data(), count(), ncclInt32, ncclSum, comm, nullptr);
  });
  for (const auto& output : out) {
    expect(output, count(), sum_at);
  }
}

TEST_P(CollectivesTest, AllReduceInPlaceTwiceAddsUp) {
  Buffers buffers = outputs(1);
  for (auto& buffer : buffers) {
    std::fill(buffer.begin(), buffer.end() - 1, 1);
  }
  run([&](int rank, ncclComm_t comm) {
    auto* const data = buffers[static_cast<size_t>(rank)].data();
    return ncclAllReduce(data, data, count(), ncclInt32, ncclSum, comm, nullptr);
  });
  for (const auto& output : buffers) {
    expect(output, count(), [](size_t) { return GetParam().nranks * GetParam().nranks; });
  }
}

TEST_P(CollectivesTest, BroadcastGivesTheRootsData) {
  const int root = GetParam().nranks / 2;
  const Buffers in = inputs(1);
  Buffers out = outputs(1);
  run([&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return ncclBroadcast(rank == root ? in[r].data() : nullptr, out[r].data(), count(), ncclInt32,
                         root, comm, nullptr);
  });
  for (const auto& output : out) {
    expect(output, count(), [&](size_t i) { return static_cast<int32_t>(value_of(root, i)); });
  }
}

TEST_P(CollectivesTest, ReduceSumsAtTheRootOnly) {
  const int root = GetParam().nranks - 1;
  const Buffers in = inputs(1);
  Buffers out = outputs(1);
  run([&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return ncclReduce(in[r].data(), rank == root ? out[r].data() : nullptr, count(), ncclInt32,
                      ncclSum, root, comm, nullptr);
  });
  expect(out.back(), count(), sum_at);
}

TEST_P(CollectivesTest, AllGatherCollectsInRankOrder) {
  const Buffers in = inputs(1);
  Buffers out = outputs(n());
  run([&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return ncclAllGather(in[r].data(), out[r].data(), count(), ncclInt32, comm, nullptr);
  });
  for (const auto& output : out) {
    expect(output, n() * count(), [](size_t i) {
      return static_cast<int32_t>(value_of(static_cast<int>(i / count()), i % count()));
    });
  }
}

/// On every second rank, and then on all. The second call sends back what came in place.
TEST_P(CollectivesTest, AllToAllInPlace) {
  for (const size_t stride : {2, 1}) {
    const Buffers in = inputs(n());
    Buffers out = in;
    for (auto& output : out) {
      output.push_back(-77);
    }
    run([&](int rank, ncclComm_t comm) {
      const auto r = static_cast<size_t>(rank);
      int32_t* const data = out[r].data();
      return ncclAlltoAll(r % stride == 0 ? data : in[r].data(), data, count(), ncclInt32, comm,
                          nullptr);
    });
    for (size_t rank = 0; rank < n(); ++rank) {
      expect(out[rank], n() * count(), [&](size_t i) {
        const size_t from = i / count();
        return from % stride == 0 ? in[rank][i]
                                  : static_cast<int32_t>(value_of(static_cast<int>(from),
                                                                  rank * count() + i % count()));
      });
    }
  }
}

TEST_P(CollectivesTest, AllGatherInPlace) {
  Buffers out = outputs(n());
  for (size_t rank = 0; rank < n(); ++rank) {
    for (size_t i = 0; i < count(); ++i) {
      out[rank][rank * count() + i] = static_cast<int32_t>(value_of(static_cast<int>(rank), i));
    }
  }
  run([&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return ncclAllGather(out[r].data() + r * count(), out[r].data(), count(), ncclInt32, comm,
                         nullptr);
  });
  for (const auto& output : out) {
    expect(output, n() * count(), [](size_t i) {
      return static_cast<int32_t>(value_of(static_cast<int>(i / count()), i % count()));
    });
  }
}

TEST_P(CollectivesTest, ReduceScatterSumsEachBlockAtItsRank) {
  const Buffers in = inputs(n());
  Buffers out = outputs(1);
  run([&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return ncclReduceScatter(in[r].data(), out[r].data(), count(), ncclInt32, ncclSum, comm,
                             nullptr);
  });
  for (size_t rank = 0; rank < n(); ++rank) {
    expect(out[rank], count(), [&](size_t i) { return sum_at(rank * count() + i); });
  }
}

TEST_P(CollectivesTest, AllToAllTransposesBlocks) {
  const Buffers in = inputs(n());
  Buffers out = outputs(n());
  run([&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return ncclAlltoAll(in[r].data(), out[r].data(), count(), ncclInt32, comm, nullptr);
  });
  for (size_t rank = 0; rank < n(); ++rank) {
    expect(out[rank], n() * count(), [&](size_t i) {
      return static_cast<int32_t>(
          value_of(static_cast<int>(i / count()), rank * count() + i % count()));
    });
  }
}

TEST_P(CollectivesTest, GatherThenScatterGivesBack) {
  const int root = 0;
  const Buffers in = inputs(1);
  Buffers gathered = outputs(n());
  Buffers out = outputs(1);
  run([&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return ncclGather(in[r].data(), rank == root ? gathered[r].data() : nullptr, count(), ncclInt32,
                      root, comm, nullptr);
  });
  expect(gathered.front(), n() * count(), [](size_t i) {
    return static_cast<int32_t>(value_of(static_cast<int>(i / count()), i % count()));
  });
  run([&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return ncclScatter(rank == root ? gathered[r].data() : nullptr, out[r].data(), count(),
                       ncclInt32, root, comm, nullptr);
  });
  for (size_t rank = 0; rank < n(); ++rank) {
    expect(out[rank], count(),
           [&](size_t i) { return static_cast<int32_t>(value_of(static_cast<int>(rank), i)); });
  }
}

TEST_P(CollectivesTest, SendAndReceiveRoundTheRing) {
  const Buffers in = inputs(1);
  Buffers out = outputs(1);
  run([&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    const int next = (rank + 1) % GetParam().nranks;
    const int prev = (rank + GetParam().nranks - 1) % GetParam().nranks;
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(in[r].data(), count(), ncclInt32, next, comm, nullptr), ncclSuccess);
    EXPECT_EQ(ncclRecv(out[r].data(), count(), ncclInt32, prev, comm, nullptr), ncclSuccess);
    return ncclGroupEnd();
  });
  for (size_t rank = 0; rank < n(); ++rank) {
    const int prev = static_cast<int>((rank + n() - 1) % n());
    expect(out[rank], count(), [&](size_t i) { return static_cast<int32_t>(value_of(prev, i)); });
  }
}

constexpr size_t kSlotElements = 128 * 1024 / sizeof(int32_t);

INSTANTIATE_TEST_SUITE_P(Ranks,
                         CollectivesTest,
                         testing::Values(Case{Mode::kGroup, 1, 5},
                                         Case{Mode::kGroup, 2, 1},
                                         Case{Mode::kGroup, 2, 12345},
                                         Case{Mode::kGroup, 3, 7},
                                         Case{Mode::kGroup, 3, kSlotElements + 1},
                                         Case{Mode::kGroup, 4, 3 * kSlotElements - 5},
                                         Case{Mode::kGroup, 5, 64},
                                         Case{Mode::kGroup, 8, 1000},
                                         Case{Mode::kGroup, 17, 333},
                                         Case{Mode::kThreads, 2, 1},
                                         Case{Mode::kThreads, 2, 20 * kSlotElements + 3},
                                         Case{Mode::kThreads, 3, 4097},
                                         Case{Mode::kThreads, 4, kSlotElements},
                                         Case{Mode::kThreads, 8, 100}),
                         case_name);

// The algorithms that are not chosen by default, each with one and with two channels.
// kernels/program proves the programs; here the executor runs them.
std::vector<Case> algorithm_cases() {
  std::vector<Case> cases;
  for (const char* const algorithms :
       {"allreduce:tree;broadcast:binomial;reduce:binomial;allgather:bruck;reducescatter:pat;"
        "alltoall:bruck;gather:binomial;scatter:binomial",
        "allreduce:doubling;allgather:pat;broadcast:tree", "allreduce:halving",
        "allreduce:quadrupling", "allreduce:nearhalving", "allreduce:swing",
        "allreduce:hierarchical;broadcast:hierarchical;reduce:hierarchical;"
        "allgather:hierarchical;reducescatter:hierarchical;alltoall:hierarchical",
        "allreduce:dcpairs", "allreduce:torus;alltoall:torus", "allreduce:twoshot",
        "allreduce:biring;allgather:biring",
        "allreduce:allpairs;broadcast:allpairs;reduce:allpairs;allgather:allpairs;"
        "reducescatter:allpairs"}) {
    cases.push_back({Mode::kGroup, 2, 5, algorithms, "2"});
    cases.push_back({Mode::kGroup, 3, kSlotElements + 1, algorithms, "1"});
    cases.push_back({Mode::kGroup, 6, 1000, algorithms, "2"});
    cases.push_back({Mode::kGroup, 13, 77, algorithms, "1"});
    cases.push_back({Mode::kThreads, 2, 20 * kSlotElements + 3, algorithms, "2"});
    cases.push_back({Mode::kThreads, 4, 2 * kSlotElements + 3, algorithms, "1"});
    cases.push_back({Mode::kThreads, 8, 4097, algorithms, "2"});
    for (const char* const protocol : {"LL", "LL128"}) {
      cases.push_back({Mode::kGroup, 3, 3000, algorithms, "1", protocol});
      cases.push_back({Mode::kGroup, 7, 31, algorithms, "2", protocol});
      cases.push_back({Mode::kThreads, 2, 30'001, algorithms, "1", protocol});
      cases.push_back({Mode::kThreads, 4, 1025, algorithms, "2", protocol});
    }
  }
  for (const char* const protocol : {"LL", "LL128"}) {
    cases.push_back({Mode::kGroup, 4, 999, "", "1", protocol});
    cases.push_back({Mode::kThreads, 3, 20'000, "ring", "1", protocol});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Algorithms,
                         CollectivesTest,
                         testing::ValuesIn(algorithm_cases()),
                         case_name);

TEST(Collectives, OneThreadDrivesAThousandRanks) {
  constexpr int kRanks = 1024;
  constexpr size_t kCount = 3000;
  Job job(kRanks);
  std::vector<std::vector<float>> buffers(kRanks, std::vector<float>(kCount, 1));
  job.run_in_group([&](int rank, ncclComm_t comm) {
    auto* const data = buffers[static_cast<size_t>(rank)].data();
    return ncclAllReduce(data, data, kCount, ncclFloat32, ncclSum, comm, nullptr);
  });
  for (const auto& buffer : buffers) {
    ASSERT_EQ(buffer.front(), kRanks);
    ASSERT_EQ(buffer.back(), kRanks);
  }
}

/// Sums of 7 ranks with the given settings, as bits.
std::vector<float> sum_of_seven(const char* algorithms, const char* channels, bool deterministic) {
  constexpr int kRanks = 7;
  constexpr size_t kCount = 50'000;
  setenv("NCCL_ALGO", algorithms, 1);
  setenv("NCCL_MIN_CTAS", channels, 1);
  setenv("PLEXUS_DETERMINISTIC", deterministic ? "1" : "0", 1);
  std::vector<std::vector<float>> buffers(kRanks, std::vector<float>(kCount));
  for (size_t rank = 0; rank < kRanks; ++rank) {
    for (size_t i = 0; i < kCount; ++i) {
      buffers[rank][i] = 1.0F / static_cast<float>(1 + (i * 31 + rank * 17) % 977);
    }
  }
  Job job(kRanks);
  job.run_in_group([&](int rank, ncclComm_t comm) {
    auto* const data = buffers[static_cast<size_t>(rank)].data();
    return ncclAllReduce(data, data, kCount, ncclFloat32, ncclSum, comm, nullptr);
  });
  for (const char* const name : {"NCCL_ALGO", "NCCL_MIN_CTAS", "PLEXUS_DETERMINISTIC"}) {
    unsetenv(name);
  }
  EXPECT_EQ(buffers.front(), buffers.back());
  return buffers.front();
}

TEST(Collectives, DeterministicSumsDependOnTheInputsAlone) {
  const std::vector<float> first = sum_of_seven("", "1", true);
  EXPECT_EQ(first, sum_of_seven("", "3", true));
  EXPECT_EQ(first, sum_of_seven("allreduce:allpairs", "1", true));
  EXPECT_EQ(first, sum_of_seven("allreduce:twoshot", "2", true));
  EXPECT_EQ(first, sum_of_seven("^ring", "1", true)) << "whatever else is allowed";
  for (const size_t i : {size_t{0}, size_t{12'345}, size_t{49'999}}) {
    float in_rank_order = 0;
    for (size_t rank = 0; rank < 7; ++rank) {
      in_rank_order += 1.0F / static_cast<float>(1 + (i * 31 + rank * 17) % 977);
    }
    EXPECT_EQ(first[i], in_rank_order);
  }
  EXPECT_NE(first, sum_of_seven("allreduce:ring", "1", false)) << "else this test shows nothing";
}

TEST(Collectives, SameCallGivesSameBits) {
  constexpr size_t kCount = 40000;
  Job job(5);
  std::vector<std::vector<float>> first(5, std::vector<float>(kCount));
  std::vector<std::vector<float>> second = first;
  std::vector<float> input(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    input[i] = 1.0F / static_cast<float>(i + 1);
  }
  for (auto* const out : {&first, &second}) {
    for (const ncclResult_t result : job.run_in_threads([&](int rank, ncclComm_t comm) {
           return ncclAllReduce(input.data(), (*out)[static_cast<size_t>(rank)].data(), kCount,
                                ncclFloat32, ncclSum, comm, nullptr);
         })) {
      ASSERT_EQ(result, ncclSuccess);
    }
  }
  EXPECT_EQ(first, second);
  EXPECT_EQ(first.front(), first.back());
}

}  // namespace
}  // namespace plexus
