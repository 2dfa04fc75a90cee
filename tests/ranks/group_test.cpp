// SPDX-License-Identifier: Apache-2.0
// Groups, streams, messages to the own rank, zero counts, user reductions: NCCL's guarantees
// besides the plain collectives.
#include <cstring>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

using testing_job::Job;

TEST(Group, NestedGroupsLaunchAtTheOutermostEnd) {
  Job job(2);
  float in[2] = {1, 2};
  float out[2] = {0, 0};
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    ASSERT_EQ(
        ncclAllReduce(&in[rank], &out[rank], 1, ncclFloat32, ncclSum, job.comm(rank), nullptr),
        ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(out[rank], 0);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(out[0], 3);
  EXPECT_EQ(out[1], 3);
}

TEST(Group, EndWithoutStartIsInvalidUsage) { EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage); }

TEST(Group, FailingCallDiscardsTheWholeGroup) {
  Job job(2);
  float value[2] = {1, 1};
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(
        ncclAllReduce(&value[rank], &value[rank], 1, ncclFloat32, ncclSum, job.comm(rank), nullptr),
        ncclSuccess);
  }
  EXPECT_EQ(ncclBroadcast(value, value, 1, ncclFloat32, 9, job.comm(0), nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(value[0], 1);
  job.run_in_group([&](int rank, ncclComm_t comm) {
    return ncclAllReduce(&value[rank], &value[rank], 1, ncclFloat32, ncclSum, comm, nullptr);
  });
  EXPECT_EQ(value[0], 2);  // the communicators still work
}

TEST(Group, MixesCollectivesAndMessages) {
  Job job(3);
  std::vector<int> sums(3, 1);
  std::vector<int> ids = {10, 11, 12};
  std::vector<int> got(3, 0);
  job.run_in_group([&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    EXPECT_EQ(ncclAllReduce(&sums[r], &sums[r], 1, ncclInt32, ncclSum, comm, nullptr), ncclSuccess);
    EXPECT_EQ(ncclSend(&ids[r], 1, ncclInt32, (rank + 1) % 3, comm, nullptr), ncclSuccess);
    EXPECT_EQ(ncclRecv(&got[r], 1, ncclInt32, (rank + 2) % 3, comm, nullptr), ncclSuccess);
    return ncclAllReduce(&sums[r], &sums[r], 1, ncclInt32, ncclSum, comm, nullptr);
  });
  EXPECT_EQ(sums, std::vector<int>(3, 9));
  EXPECT_EQ(got, (std::vector<int>{12, 10, 11}));
}

TEST(Group, MessagesToOnePeerKeepTheirOrder) {
  Job job(2);
  int sent[3] = {1, 2, 3};
  int got[3] = {0, 0, 0};
  job.run_in_group([&](int rank, ncclComm_t comm) {
    for (int i = 0; i < 3; ++i) {
      const ncclResult_t result = rank == 0 ? ncclSend(&sent[i], 1, ncclInt32, 1, comm, nullptr)
                                            : ncclRecv(&got[i], 1, ncclInt32, 0, comm, nullptr);
      EXPECT_EQ(result, ncclSuccess);
    }
    return ncclSuccess;
  });
  EXPECT_EQ(std::memcmp(sent, got, sizeof(got)), 0);
}

TEST(Group, MessageToOneselfNeedsItsCounterpart) {
  Job job(1);
  int out = 5;
  int in = 0;
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(ncclSend(&out, 1, ncclInt32, 0, job.comm(0), nullptr), ncclSuccess);
  ASSERT_EQ(ncclRecv(&in, 1, ncclInt32, 0, job.comm(0), nullptr), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_EQ(in, 5);
  EXPECT_EQ(ncclSend(&out, 1, ncclInt32, 0, job.comm(0), nullptr), ncclInvalidUsage);
}

TEST(Group, MessageOfZeroElementsIsMatched) {
  Job job(2);
  for (const ncclResult_t result : job.run_in_threads([&](int rank, ncclComm_t comm) {
         return rank == 0 ? ncclSend(nullptr, 0, ncclInt32, 1, comm, nullptr)
                          : ncclRecv(nullptr, 0, ncclInt32, 0, comm, nullptr);
       })) {
    EXPECT_EQ(result, ncclSuccess) << ncclGetLastError(nullptr);
  }
}

/// Rank i sends i + 2j + 1 elements of value 100 i + j to rank j.
TEST(Vector, AllToAllVMovesACountOfItsOwnForEveryPair) {
  constexpr int kRanks = 4;
  const auto count_of = [](int from, int to) { return static_cast<size_t>(from + 2 * to + 1); };
  struct Side {
    std::vector<int32_t> data;
    std::vector<size_t> counts;
    std::vector<size_t> displacements;
    void add(size_t count, int32_t value) {
      displacements.push_back(data.size());
      counts.push_back(count);
      data.insert(data.end(), count, value);
    }
  };
  std::vector<Side> sends(kRanks);
  std::vector<Side> receives(kRanks);
  std::vector<Side> expected(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    for (int peer = 0; peer < kRanks; ++peer) {
      sends[r].add(count_of(rank, peer), 100 * rank + peer);
      receives[r].add(count_of(peer, rank), -1);
      expected[r].add(count_of(peer, rank), 100 * peer + rank);
    }
  }
  Job job(kRanks);
  for (const ncclResult_t result : job.run_in_threads([&](int rank, ncclComm_t comm) {
         Side& out = sends[static_cast<size_t>(rank)];
         Side& in = receives[static_cast<size_t>(rank)];
         return plexusAllToAllV(out.data.data(), out.counts.data(), out.displacements.data(),
                                in.data.data(), in.counts.data(), in.displacements.data(),
                                ncclInt32, comm, nullptr);
       })) {
    EXPECT_EQ(result, ncclSuccess) << ncclGetLastError(nullptr);
  }
  for (size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(receives[rank].data, expected[rank].data);
  }
}

TEST(Vector, AllGatherVCollectsBlocksOfDifferentLength) {
  constexpr int kRanks = 3;
  const std::vector<size_t> counts = {5, 0, 2};
  const std::vector<size_t> displacements = {2, 2, 0};  // the last rank's block comes first
  const std::vector<std::vector<int32_t>> inputs = {
      std::vector<int32_t>(5, 10), {}, std::vector<int32_t>(2, 12)};
  std::vector<std::vector<int32_t>> outputs(kRanks, std::vector<int32_t>(7, -1));
  Job job(kRanks);
  job.run_in_group([&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return plexusAllGatherV(inputs[r].data(), counts[r], outputs[r].data(), counts.data(),
                            displacements.data(), ncclInt32, comm, nullptr);
  });
  for (const auto& output : outputs) {
    EXPECT_EQ(output, (std::vector<int32_t>{12, 12, 10, 10, 10, 10, 10}));
  }
}

TEST(Vector, CountsThatDoNotMatchFailOnBothSides) {
  Job job(2);
  std::vector<int32_t> data(16);
  const std::vector<size_t> zeros = {0, 0};
  const auto results = job.run_in_threads([&](int rank, ncclComm_t comm) {
    const std::vector<size_t> counts = {static_cast<size_t>(rank + 1),
                                        static_cast<size_t>(rank + 1)};
    std::vector<int32_t> received(16);
    return plexusAllToAllV(data.data(), counts.data(), zeros.data(), received.data(), counts.data(),
                           zeros.data(), ncclInt32, comm, nullptr);
  });
  EXPECT_EQ(results, std::vector<ncclResult_t>(2, ncclInvalidUsage));
}

TEST(Vector, MissingArraysAreInvalid) {
  Job job(1);
  int32_t value = 0;
  EXPECT_EQ(plexusAllGatherV(&value, 1, &value, nullptr, nullptr, ncclInt32, job.comm(0), nullptr),
            ncclInvalidArgument);
  const size_t one = 1;
  EXPECT_EQ(
      plexusAllToAllV(&value, &one, &one, &value, &one, nullptr, ncclInt32, job.comm(0), nullptr),
      ncclInvalidArgument);
}

TEST(Reductions, PreMulSumMultipliesEachRanksInput) {
  Job job(3);
  std::vector<float> in = {1, 10, 100};
  std::vector<float> out(3);
  std::vector<ncclRedOp_t> ops(3);
  for (int rank = 0; rank < 3; ++rank) {
    float scalar = static_cast<float>(rank + 1);
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&ops[static_cast<size_t>(rank)], &scalar, ncclFloat32,
                                       ncclScalarHostImmediate, job.comm(rank)),
              ncclSuccess);
  }
  job.run_in_group([&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return ncclAllReduce(&in[r], &out[r], 1, ncclFloat32, ops[r], comm, nullptr);
  });
  EXPECT_EQ(out, std::vector<float>(3, 321));
  float unused = 0;
  EXPECT_EQ(ncclAllReduce(&unused, &unused, 1, ncclFloat64, ops[0], job.comm(0), nullptr),
            ncclInvalidArgument);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ncclRedOpDestroy(ops[static_cast<size_t>(rank)], job.comm(rank)), ncclSuccess);
  }
  EXPECT_EQ(ncclRedOpDestroy(ops[0], job.comm(0)), ncclInvalidArgument);
  EXPECT_EQ(ncclRedOpDestroy(ncclSum, job.comm(0)), ncclInvalidArgument);
}

TEST(Reductions, AverageDividesIntegersTowardsZero) {
  Job job(2);
  std::vector<int> in = {-3, -4};
  std::vector<int> out(2);
  job.run_in_group([&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    return ncclAllReduce(&in[r], &out[r], 1, ncclInt32, ncclAvg, comm, nullptr);
  });
  EXPECT_EQ(out, std::vector<int>(2, -3));
}

TEST(Streams, RunInOrderBesideTheCaller) {
  constexpr size_t kCount = 100000;
  Job job(2);
  std::vector<std::vector<float>> data(2, std::vector<float>(kCount, 1));
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) {
    ASSERT_EQ(plexusStreamCreate(&stream), ncclSuccess);
  }
  for (int repeat = 0; repeat < 5; ++repeat) {
    // without a group the second call finds the first one pending
    for (int rank = 0; rank < 2; ++rank) {
      auto* const buffer = data[static_cast<size_t>(rank)].data();
      ASSERT_EQ(ncclAllReduce(buffer, buffer, kCount, ncclFloat32, ncclSum, job.comm(rank),
                              streams[rank]),
                ncclSuccess);
    }
  }
  for (const cudaStream_t stream : streams) {
    EXPECT_EQ(plexusStreamSynchronize(stream), ncclSuccess);
    EXPECT_EQ(plexusStreamQuery(stream), ncclSuccess);
    EXPECT_EQ(plexusStreamDestroy(stream), ncclSuccess);
  }
  EXPECT_EQ(data[0].front(), 32);
  EXPECT_EQ(data[1].back(), 32);
  EXPECT_EQ(plexusStreamQuery(streams[0]), ncclInvalidArgument);
}

TEST(Streams, SeveralLocalRanksShareOneInAGroup) {
  Job job(3);
  std::vector<float> data(3, 2);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(plexusStreamCreate(&stream), ncclSuccess);
  for (int repeat = 0; repeat < 3; ++repeat) {
    job.run_in_group([&](int rank, ncclComm_t comm) {
      float* const value = &data[static_cast<size_t>(rank)];
      return ncclAllReduce(value, value, 1, ncclFloat32, ncclSum, comm, stream);
    });
  }
  EXPECT_EQ(plexusStreamSynchronize(stream), ncclSuccess);
  EXPECT_EQ(data, std::vector<float>(3, 54));
  EXPECT_EQ(plexusStreamDestroy(stream), ncclSuccess);
}

TEST(Streams, CommunicatorsOfAGroupShareOneWhateverTheirOrder) {
  Job one(2);
  Job other(2);
  const auto results = one.run_in_threads([&](int rank, ncclComm_t comm) {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(plexusStreamCreate(&stream), ncclSuccess);
    float data[2] = {1, 2};
    const auto call = [&](ncclComm_t used, float* value) {
      EXPECT_EQ(ncclAllReduce(value, value, 1, ncclFloat32, ncclSum, used, stream), ncclSuccess);
    };
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    if (rank == 0) {
      call(comm, data);
      call(other.comm(rank), data + 1);
    } else {
      call(other.comm(rank), data + 1);
      call(comm, data);
    }
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    const ncclResult_t result = plexusStreamSynchronize(stream);
    EXPECT_EQ(data[0], 2);
    EXPECT_EQ(data[1], 4);
    EXPECT_EQ(plexusStreamDestroy(stream), ncclSuccess);
    return result;
  });
  EXPECT_EQ(results, std::vector<ncclResult_t>(2, ncclSuccess));
}

TEST(Streams, AGroupThatIsPartlyInlineReturnsTheErrorOfItsOtherPart) {
  Job job(2);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(plexusStreamCreate(&stream), ncclSuccess);
  const auto results = job.run_in_threads([&](int rank, ncclComm_t comm) {
    float value[2] = {1, 1};
    if (rank == 1) {  // not the same call as on the other rank
      return ncclAllReduce(value, value, 2, ncclFloat32, ncclSum, comm, nullptr);
    }
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclAllReduce(value, value, 1, ncclFloat32, ncclSum, comm, nullptr), ncclSuccess);
    EXPECT_EQ(ncclAllReduce(value, value, 1, ncclFloat32, ncclSum, comm, stream), ncclSuccess);
    return ncclGroupEnd();
  });
  EXPECT_EQ(results, std::vector<ncclResult_t>(2, ncclInvalidUsage));
  EXPECT_EQ(plexusStreamDestroy(stream), ncclInvalidUsage);
}

TEST(Group, AnAllToAllWithCountsDoesNotMixWithMessages) {
  Job job(2);
  const auto results = job.run_in_threads([&](int rank, ncclComm_t comm) {
    const std::vector<int32_t> values = {rank, rank, rank, rank, rank};
    std::vector<int32_t> exchanged(5, -1);
    std::vector<int32_t> message(5, -1);
    const std::vector<size_t> counts = {2, 2};
    const std::vector<size_t> places = {0, 3};
    const auto all_to_all = [&] {
      EXPECT_EQ(plexusAllToAllV(values.data(), counts.data(), places.data(), exchanged.data(),
                                counts.data(), places.data(), ncclInt32, comm, nullptr),
                ncclSuccess);
    };
    const auto send_and_receive = [&] {
      EXPECT_EQ(ncclSend(values.data(), 5, ncclInt32, 1 - rank, comm, nullptr), ncclSuccess);
      EXPECT_EQ(ncclRecv(message.data(), 5, ncclInt32, 1 - rank, comm, nullptr), ncclSuccess);
    };
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    if (rank == 0) {
      all_to_all();
      send_and_receive();
    } else {
      send_and_receive();
      all_to_all();
    }
    const ncclResult_t result = ncclGroupEnd();
    EXPECT_EQ(exchanged, (std::vector<int32_t>{0, 0, -1, 1, 1}));
    EXPECT_EQ(message, std::vector<int32_t>(5, 1 - rank));
    return result;
  });
  EXPECT_EQ(results, std::vector<ncclResult_t>(2, ncclSuccess)) << ncclGetLastError(nullptr);
}

TEST(Group, OneThatCannotBePlannedLeavesNothingBehind) {
  Job one(2);
  Job other(2);
  const auto results = one.run_in_threads([&](int rank, ncclComm_t comm) {
    float value = 1;
    float sum = 0;
    if (rank == 0) {
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      EXPECT_EQ(ncclAllReduce(&value, &sum, 1, ncclFloat32, ncclSum, comm, nullptr), ncclSuccess);
      EXPECT_EQ(ncclSend(&value, 1, ncclFloat32, 0, other.comm(0), nullptr), ncclSuccess);
      EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "a send to itself without its receive";
    }
    const ncclResult_t result = ncclAllReduce(&value, &sum, 1, ncclFloat32, ncclSum, comm, nullptr);
    EXPECT_EQ(sum, 2);
    return result;
  });
  EXPECT_EQ(results, std::vector<ncclResult_t>(2, ncclSuccess)) << ncclGetLastError(nullptr);
}

}  // namespace
}  // namespace plexus
