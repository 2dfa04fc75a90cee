// SPDX-License-Identifier: Apache-2.0
// All-gather, reduce-scatter, gather and scatter of plexus.h, with a count of its own for every
// rank: results, by every algorithm, in place, zero counts, wrong arguments.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/ranks/job.hpp"

namespace plexus::testing_job {
namespace {

using testing::HasSubstr;

constexpr int kRanks = 4;
constexpr int kRoot = 2;
// The blocks of the ranks: one is empty, one long, and they are not in the order of the ranks.
const std::vector<size_t> kCounts = {3, 0, 70000, 5};
const std::vector<size_t> kDisplacements = {70006, 9, 1, 70001};
constexpr size_t kElements = 70010;

class Vector : public testing::Test {
 protected:
  Job job_{kRanks};
};

std::vector<int32_t> input_of(int rank, size_t count) {
  std::vector<int32_t> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<int32_t>(value_of(rank, i) + 1000 * rank);
  }
  return values;
}

TEST_F(Vector, ReduceScatterVGivesEveryRankItsBlockOfTheSum) {
  for (const bool in_place : {false, true}) {
    std::vector<std::vector<int32_t>> inputs;
    std::vector<std::vector<int32_t>> outputs;
    for (int rank = 0; rank < kRanks; ++rank) {
      inputs.push_back(input_of(rank, kElements));
      outputs.emplace_back(kCounts[static_cast<size_t>(rank)] + 1, -1);
    }
    job_.run_in_group([&](int rank, ncclComm_t comm) {
      const auto r = static_cast<size_t>(rank);
      int32_t* const out = in_place ? inputs[r].data() + kDisplacements[r] : outputs[r].data();
      return plexusReduceScatterV(inputs[r].data(), kCounts.data(), kDisplacements.data(), out,
                                  kCounts[r], ncclInt32, ncclSum, comm, nullptr);
    });
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto r = static_cast<size_t>(rank);
      const int32_t* const out =
          in_place ? inputs[r].data() + kDisplacements[r] : outputs[r].data();
      for (size_t i = 0; i < kCounts[r]; ++i) {
        int32_t sum = 0;
        for (int from = 0; from < kRanks; ++from) {
          sum += static_cast<int32_t>(value_of(from, kDisplacements[r] + i) + 1000 * from);
        }
        ASSERT_EQ(out[i], sum) << rank << " " << i;
      }
      EXPECT_EQ(outputs[r].back(), -1) << "beyond its block";
    }
  }
}

TEST_F(Vector, ReduceScatterVTakesAUsersOperation) {
  std::vector<ncclRedOp_t> ops(kRanks);
  std::vector<std::vector<float>> inputs(kRanks, std::vector<float>(kRanks, 1));
  std::vector<float> outputs(kRanks);
  const std::vector<size_t> ones(kRanks, 1);
  const std::vector<size_t> places = {0, 1, 2, 3};
  for (int rank = 0; rank < kRanks; ++rank) {
    float scalar = static_cast<float>(rank + 1);
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&ops[static_cast<size_t>(rank)], &scalar, ncclFloat32,
                                       ncclScalarHostImmediate, job_.comm(rank)),
              ncclSuccess);
  }
  job_.run_in_group([&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return plexusReduceScatterV(inputs[r].data(), ones.data(), places.data(), &outputs[r], 1,
                                ncclFloat32, ops[r], comm, nullptr);
  });
  EXPECT_EQ(outputs, (std::vector<float>{10, 10, 10, 10}));
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ncclRedOpDestroy(ops[static_cast<size_t>(rank)], job_.comm(rank)), ncclSuccess);
  }
}

TEST_F(Vector, GatherVPutsEveryRanksBlockWhereTheRootSays) {
  for (const bool in_place : {false, true}) {
    std::vector<std::vector<int32_t>> inputs;
    for (int rank = 0; rank < kRanks; ++rank) {
      inputs.push_back(input_of(rank, kCounts[static_cast<size_t>(rank)]));
    }
    std::vector<int32_t> all(kElements, -1);
    int32_t* const own = all.data() + kDisplacements[kRoot];
    std::copy(inputs[kRoot].begin(), inputs[kRoot].end(), own);
    for (const ncclResult_t result : job_.run_in_threads([&](int rank, ncclComm_t comm) {
           const auto r = static_cast<size_t>(rank);
           const bool is_root = rank == kRoot;
           return plexusGatherV(is_root && in_place ? own : inputs[r].data(), kCounts[r],
                                is_root ? all.data() : nullptr, is_root ? kCounts.data() : nullptr,
                                is_root ? kDisplacements.data() : nullptr, ncclInt32, kRoot, comm,
                                nullptr);
         })) {
      EXPECT_EQ(result, ncclSuccess) << ncclGetLastError(nullptr);
    }
    for (size_t r = 0; r < kRanks; ++r) {
      const auto begin = all.begin() + static_cast<ptrdiff_t>(kDisplacements[r]);
      EXPECT_TRUE(std::equal(inputs[r].begin(), inputs[r].end(), begin)) << r;
    }
    EXPECT_EQ(all[0], -1) << "of no block";
  }
}

TEST_F(Vector, ScatterVGivesEveryRankItsBlock) {
  for (const bool in_place : {false, true}) {
    std::vector<int32_t> all = input_of(7, kElements);
    std::vector<std::vector<int32_t>> outputs;
    for (int rank = 0; rank < kRanks; ++rank) {
      outputs.emplace_back(kCounts[static_cast<size_t>(rank)] + 1, -1);
    }
    for (const ncclResult_t result : job_.run_in_threads([&](int rank, ncclComm_t comm) {
           const auto r = static_cast<size_t>(rank);
           const bool is_root = rank == kRoot;
           int32_t* const out =
               is_root && in_place ? all.data() + kDisplacements[r] : outputs[r].data();
           return plexusScatterV(is_root ? all.data() : nullptr, is_root ? kCounts.data() : nullptr,
                                 is_root ? kDisplacements.data() : nullptr, out, kCounts[r],
                                 ncclInt32, kRoot, comm, nullptr);
         })) {
      EXPECT_EQ(result, ncclSuccess) << ncclGetLastError(nullptr);
    }
    const std::vector<int32_t> expected = input_of(7, kElements);
    EXPECT_EQ(all, expected) << "the root's buffer does not change";
    for (size_t r = 0; r < kRanks; ++r) {
      if (r != kRoot || !in_place) {
        EXPECT_TRUE(std::equal(outputs[r].begin(), outputs[r].end() - 1,
                               expected.begin() + static_cast<ptrdiff_t>(kDisplacements[r])))
            << r;
      }
      EXPECT_EQ(outputs[r].back(), -1) << "beyond its block";
    }
  }
}

TEST_F(Vector, CountsThatRanksDoNotShareFailOnAllThatMeet) {
  std::vector<int32_t> data(64);
  const std::vector<size_t> ones(kRanks, 1);
  const std::vector<size_t> zeros(kRanks, 0);
  const auto results = job_.run_in_threads([&](int rank, ncclComm_t comm) {
    std::vector<int32_t> received(64);
    const std::vector<size_t> counts(kRanks, rank == 0 ? 1 : 2);
    return plexusReduceScatterV(data.data(), counts.data(), zeros.data(), received.data(),
                                counts[0], ncclInt32, ncclSum, comm, nullptr);
  });
  EXPECT_EQ(results, std::vector<ncclResult_t>(kRanks, ncclInvalidUsage));
}

/// NCCL_ALGO, NCCL_PROTO, NCCL_MIN_CTAS, and whether ranks have only the network.
struct How {
  const char* algorithm;
  const char* protocol = "";
  const char* channels = "";
  bool by_network = false;
};

class ByAlgorithm : public testing::TestWithParam<How> {
 protected:
  void SetUp() override {
    setenv("NCCL_ALGO", GetParam().algorithm, 1);
    setenv("NCCL_PROTO", GetParam().protocol, 1);
    setenv("NCCL_MIN_CTAS", GetParam().channels, 1);
    if (GetParam().by_network) {
      setenv("NCCL_P2P_DISABLE", "1", 1);
      setenv("NCCL_SHM_DISABLE", "1", 1);
    }
  }
  void TearDown() override {
    for (const char* const name :
         {"NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_CTAS", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"}) {
      unsetenv(name);
    }
  }

  /// Blocks in reverse order with gaps between them.
  struct Blocks {
    explicit Blocks(std::vector<size_t> of_ranks)
        : counts(std::move(of_ranks)), displacements(counts.size()) {
      for (size_t rank = counts.size(); rank-- > 0;) {
        displacements[rank] = elements + 3;
        elements += 3 + counts[rank];
      }
    }
    std::vector<size_t> counts;
    std::vector<size_t> displacements;
    size_t elements = 0;
  };
  /// Few elements, some none; one rank with a thousand times what others have, which takes several
  /// loops; one rank with all there is.
  static std::vector<Blocks> list_blocks(size_t nranks) {
    std::vector<size_t> few(nranks);
    std::vector<size_t> skewed(nranks);
    std::vector<size_t> one(nranks, 0);
    for (size_t rank = 0; rank < nranks; ++rank) {
      few[rank] = (3 * rank + 2) % 7 % 5;
      skewed[rank] = rank == nranks / 2 ? 80'001 : 97 * rank;
    }
    one.back() = 40;
    return {Blocks(few), Blocks(skewed), Blocks(one)};
  }

  static void all_gather(const Blocks& blocks, bool in_place) {
    const size_t n = blocks.counts.size();
    std::vector<std::vector<int32_t>> inputs;
    std::vector<std::vector<int32_t>> outputs(n, std::vector<int32_t>(blocks.elements, -1));
    for (size_t rank = 0; rank < n; ++rank) {
      inputs.push_back(input_of(static_cast<int>(rank), blocks.counts[rank]));
      if (in_place) {
        std::copy(inputs[rank].begin(), inputs[rank].end(),
                  outputs[rank].data() + blocks.displacements[rank]);
      }
    }
    Job job(static_cast<int>(n));
    const Job::Body body = [&](int rank, ncclComm_t comm) {
      const auto r = static_cast<size_t>(rank);
      const int32_t* const in =
          in_place ? outputs[r].data() + blocks.displacements[r] : inputs[r].data();
      return plexusAllGatherV(blocks.counts[r] == 0 ? nullptr : in, blocks.counts[r],
                              outputs[r].data(), blocks.counts.data(), blocks.displacements.data(),
                              ncclInt32, comm, nullptr);
    };
    job.run_in_group(body);
    EXPECT_THAT(job.run_in_threads(body), testing::Each(ncclSuccess)) << ncclGetLastError(nullptr);
    std::vector<int32_t> expected(blocks.elements, -1);  // where no block is, too
    for (size_t rank = 0; rank < n; ++rank) {
      std::copy(inputs[rank].begin(), inputs[rank].end(),
                expected.data() + blocks.displacements[rank]);
    }
    for (size_t rank = 0; rank < n; ++rank) {
      ASSERT_TRUE(outputs[rank] == expected) << "rank " << rank;
    }
  }

  static void reduce_scatter(const Blocks& blocks, bool in_place) {
    const size_t n = blocks.counts.size();
    std::vector<std::vector<int32_t>> inputs;
    std::vector<std::vector<int32_t>> outputs;
    for (size_t rank = 0; rank < n; ++rank) {
      inputs.push_back(input_of(static_cast<int>(rank), blocks.elements));
      outputs.emplace_back(blocks.counts[rank] + 1, -1);
    }
    const std::vector<std::vector<int32_t>> given = inputs;
    Job job(static_cast<int>(n));
    const Job::Body body = [&](int rank, ncclComm_t comm) {
      const auto r = static_cast<size_t>(rank);
      int32_t* const out =
          in_place ? inputs[r].data() + blocks.displacements[r] : outputs[r].data();
      return plexusReduceScatterV(inputs[r].data(), blocks.counts.data(),
                                  blocks.displacements.data(),
                                  blocks.counts[r] == 0 ? nullptr : out, blocks.counts[r],
                                  ncclInt32, ncclSum, comm, nullptr);
    };
    job.run_in_group(body);
    if (!in_place) {
      EXPECT_THAT(job.run_in_threads(body), testing::Each(ncclSuccess))
          << ncclGetLastError(nullptr);
    }
    std::vector<int32_t> sums(blocks.elements, 0);
    for (const auto& input : given) {
      std::transform(sums.begin(), sums.end(), input.begin(), sums.begin(), std::plus<>());
    }
    for (size_t rank = 0; rank < n; ++rank) {
      const int32_t* const mine = sums.data() + blocks.displacements[rank];
      std::vector<int32_t> input = given[rank];
      std::vector<int32_t> output(blocks.counts[rank] + 1, -1);  // nothing beyond its block
      std::copy_n(mine, blocks.counts[rank],
                  in_place ? input.data() + blocks.displacements[rank] : output.data());
      ASSERT_TRUE(inputs[rank] == input) << "rank " << rank;
      ASSERT_TRUE(outputs[rank] == output) << "rank " << rank;
    }
  }
};

TEST_P(ByAlgorithm, AllGatherVAndReduceScatterVGiveEveryElementItsPlace) {
  const std::string algorithm = GetParam().algorithm;
  const bool reduces = algorithm != "biring" && algorithm != "bruck";
  for (const size_t nranks : {1U, 2U, 3U, 5U, 8U}) {
    for (const Blocks& blocks : list_blocks(nranks)) {
      for (const bool in_place : {false, true}) {
        all_gather(blocks, in_place);
        if (reduces) {
          reduce_scatter(blocks, in_place);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms,
                         ByAlgorithm,
                         testing::Values(How{""},
                                         How{"ring"},
                                         How{"ring", "LL128"},
                                         How{"ring", "", "3"},
                                         How{"biring"},
                                         How{"bruck"},
                                         How{"bruck", "LL", "2"},
                                         How{"pat"},
                                         How{"pat", "LL128"},
                                         How{"pat", "", "3"},
                                         How{"allpairs"},
                                         How{"hierarchical"},
                                         How{"hierarchical", "", "2"},
                                         How{"bruck", "", "", true},
                                         How{"pat", "", "2", true},
                                         How{"hierarchical", "", "", true}),
                         [](const auto& how) {
                           return "A" + std::to_string(how.index) + "_" + how.param.algorithm +
                                  how.param.protocol + how.param.channels +
                                  (how.param.by_network ? "_net" : "");
                         });

TEST(VectorArguments, AreCheckedBeforeAnythingIsRead) {
  Job job(1);
  const ncclComm_t comm = job.comm(0);
  std::array<float, 8> send{1, 2, 3, 4};
  std::array<float, 8> recv{};
  const std::array<size_t, 1> one{4};
  const std::array<size_t, 1> none{0};
  const std::array<size_t, 1> huge{std::numeric_limits<size_t>::max() / 4 + 1};
  const auto refused = [](ncclResult_t result, const char* what) {
    EXPECT_EQ(result, ncclInvalidArgument);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr(what));
  };
  const auto reduce_scatter = [&](const void* in, const size_t* counts, const size_t* places,
                                  void* out, size_t count, ncclRedOp_t op = ncclSum) {
    return plexusReduceScatterV(in, counts, places, out, count, ncclFloat, op, comm, nullptr);
  };
  refused(reduce_scatter(send.data(), nullptr, none.data(), recv.data(), 4), "sendcounts is NULL");
  refused(reduce_scatter(send.data(), one.data(), nullptr, recv.data(), 4), "senddispls is NULL");
  refused(reduce_scatter(nullptr, one.data(), none.data(), recv.data(), 4), "sendbuff is NULL");
  refused(reduce_scatter(send.data(), one.data(), none.data(), nullptr, 4), "recvbuff is NULL");
  refused(reduce_scatter(send.data(), one.data(), none.data(), recv.data(), 3),
          "recvcount is 3, but sendcounts[0], of this rank, is 4");
  refused(reduce_scatter(send.data(), one.data(), huge.data(), recv.data(), 4), "senddispls[0]");
  refused(reduce_scatter(send.data(), one.data(), none.data(), recv.data(), 4,
                         static_cast<ncclRedOp_t>(99)),
          "op");
  refused(plexusAllGatherV(send.data(), 3, recv.data(), one.data(), none.data(), ncclFloat, comm,
                           nullptr),
          "sendcount is 3, but recvcounts[0], of this rank, is 4");
  EXPECT_EQ(
      plexusAllGatherV(nullptr, 0, nullptr, none.data(), huge.data(), ncclFloat, comm, nullptr),
      ncclSuccess)
      << "nothing is gathered: " << ncclGetLastError(nullptr);
  const auto gather = [&](const void* in, const size_t* counts, int root) {
    return plexusGatherV(in, 4, recv.data(), counts, none.data(), ncclFloat, root, comm, nullptr);
  };
  refused(gather(send.data(), one.data(), 1), "root 1 is not a rank");
  refused(gather(send.data(), one.data(), -1), "root -1 is not a rank");
  refused(gather(send.data(), nullptr, 0), "recvcounts is NULL");
  refused(gather(nullptr, one.data(), 0), "sendbuff is NULL");
  refused(
      plexusScatterV(send.data(), one.data(), nullptr, recv.data(), 4, ncclFloat, 0, comm, nullptr),
      "senddispls is NULL");
  refused(plexusScatterV(send.data(), huge.data(), none.data(), recv.data(), 4, ncclFloat, 0, comm,
                         nullptr),
          "sendcounts[0]");
  EXPECT_EQ(plexusScatterV(send.data(), one.data(), none.data(), recv.data(), 4, ncclFloat, 0,
                           nullptr, nullptr),
            ncclInvalidArgument);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  refused(gather(send.data(), nullptr, 0), "recvcounts is NULL");
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument) << "the group has failed";
}

}  // namespace
}  // namespace plexus::testing_job
