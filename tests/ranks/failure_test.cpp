// SPDX-License-Identifier: Apache-2.0
// Failures between ranks end in an error that names the cause, on every rank, in bounded time.
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <unistd.h>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;
using testing_job::Job;

TEST(Mismatch, DifferentCountsFailOnAllRanksAndNameBothCalls) {
  Job job(2);
  std::vector<float> buffers[2] = {std::vector<float>(100), std::vector<float>(100)};
  const auto results = job.run_in_threads([&](int rank, ncclComm_t comm) {
    return ncclAllReduce(buffers[rank].data(), buffers[rank].data(), rank == 0 ? 100 : 50,
                         ncclFloat32, ncclSum, comm, nullptr);
  });
  EXPECT_EQ(results, std::vector<ncclResult_t>(2, ncclInvalidUsage)) << ncclGetLastError(nullptr);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("count 100"));
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("count 50"));
}

TEST(Mismatch, DifferentRootsOfABroadcastDoNotHang) {
  // Each rank takes the other for the root, so no message is sent and only the slow path can find
  // it.
  Job job(2);
  float value[2] = {0, 0};
  const auto results = job.run_in_threads([&](int rank, ncclComm_t comm) {
    return ncclBroadcast(&value[rank], &value[rank], 1, ncclFloat32, 1 - rank, comm, nullptr);
  });
  EXPECT_EQ(results, std::vector<ncclResult_t>(2, ncclInvalidUsage)) << ncclGetLastError(nullptr);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("root"));
}

TEST(Mismatch, FailedCommunicatorStaysFailed) {
  Job job(2);
  float value[2] = {0, 0};
  (void)job.run_in_threads([&](int rank, ncclComm_t comm) {
    return ncclAllReduce(&value[rank], &value[rank], 1, rank == 0 ? ncclFloat32 : ncclInt32,
                         ncclSum, comm, nullptr);
  });
  for (int rank = 0; rank < 2; ++rank) {
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(job.comm(rank), &state), ncclSuccess);
    EXPECT_EQ(state, ncclInvalidUsage);
    EXPECT_EQ(
        ncclAllReduce(&value[rank], &value[rank], 1, ncclFloat32, ncclSum, job.comm(rank), nullptr),
        ncclInvalidUsage);
  }
}

TEST(Abort, EndsACallThatWaitsForARankThatNeverComes) {
  ncclComm_t comms[2];
  ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ncclSuccess);
  std::atomic<bool> entered{false};
  ncclResult_t result = ncclSuccess;
  std::thread waiter([&] {
    float value = 1;
    entered.store(true);
    result = ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comms[0], nullptr);
  });
  while (!entered.load()) {
    std::this_thread::yield();
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(ncclCommAbort(comms[0]), ncclSuccess);
  waiter.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_NE(result, ncclSuccess);
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comms[1], &state), ncclSuccess);
  EXPECT_EQ(state, ncclRemoteError) << "the other rank learns of it";
  EXPECT_EQ(ncclCommAbort(comms[1]), ncclSuccess);
}

/// Threads that call again and again, with new plans and known ones, alone and in groups, until an
/// error comes, of which they ask the reason. For sanitizers.
TEST(Abort, MayComeBetweenTheCallsOfAnotherThread) {
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    ncclComm_t comms[2];
    ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ncclSuccess);
    std::atomic<int> calls{0};
    std::vector<std::thread> callers;
    for (const ncclComm_t comm : comms) {
      callers.emplace_back([&calls, comm] {
        std::vector<float> values(100, 1);
        ncclResult_t result = ncclSuccess;
        for (size_t i = 0; result == ncclSuccess; ++i) {
          const bool in_group = i % 2 == 0;
          if (in_group) {
            EXPECT_EQ(ncclGroupStart(), ncclSuccess);
          }
          result = ncclAllReduce(values.data(), values.data(), 1 + i / 4 % values.size(),
                                 ncclFloat32, ncclSum, comm, nullptr);
          if (in_group) {
            const ncclResult_t ended = ncclGroupEnd();
            result = result == ncclSuccess ? ended : result;
          }
          calls.fetch_add(1);
        }
        EXPECT_STRNE(ncclGetLastError(comm), "");
      });
    }
    while (calls.load() < 10 * round) {
      std::this_thread::yield();
    }
    EXPECT_EQ(ncclCommAbort(comms[round % 2]), ncclSuccess);
    EXPECT_EQ(ncclCommAbort(comms[1 - round % 2]), ncclSuccess);
    for (std::thread& caller : callers) {
      caller.join();
    }
  }
}

/// Makes the calls of one rank that are no collectives, with a split that all ranks are in.
ncclResult_t use_all_functions(ncclComm_t comm, std::vector<float>& values) {
  const float scalar = 2;
  ncclRedOp_t op = ncclSum;
  void* handle = nullptr;
  ncclComm_t child = nullptr;
  int rank = 0;
  const std::function<ncclResult_t()> steps[] = {
      [&] {
        return ncclRedOpCreatePreMulSum(&op, const_cast<float*>(&scalar), ncclFloat32,
                                        ncclScalarHostImmediate, comm);
      },
      [&] {
        return ncclAllReduce(values.data(), values.data(), 1, ncclFloat32, op, comm, nullptr);
      },
      [&] { return ncclRedOpDestroy(op, comm); },
      [&] { return ncclCommRegister(comm, values.data(), values.size() * sizeof(float), &handle); },
      [&] { return ncclCommDeregister(comm, handle); },
      [&] { return ncclCommUserRank(comm, &rank); },
      [&] { return ncclCommSplit(comm, 0, rank, &child, nullptr); },
  };
  for (const auto& step : steps) {
    if (const ncclResult_t result = step(); result != ncclSuccess) {
      return result;
    }
  }
  return ncclCommDestroy(child);
}

/// Beside threads that watch. For sanitizers.
TEST(Abort, MayComeDuringEachFunctionOfAnotherThread) {
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    ncclComm_t comms[2];
    ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ncclSuccess);
    std::atomic<int> calls{0};
    std::vector<std::thread> threads;
    for (const ncclComm_t comm : comms) {
      threads.emplace_back([&calls, comm] {
        std::vector<float> values(100, 1);
        while (use_all_functions(comm, values) == ncclSuccess) {
          calls.fetch_add(1);
        }
        calls.fetch_add(kRounds);  // ended early
        EXPECT_STRNE(ncclGetLastError(comm), "");
      });
      threads.emplace_back([comm] {
        int nranks = 0;
        ncclResult_t error = ncclSuccess;
        while (ncclCommGetAsyncError(comm, &error) == ncclSuccess && error == ncclSuccess) {
          (void)ncclCommCount(comm, &nranks);
          EXPECT_NE(ncclGetLastError(comm), nullptr);
        }
      });
    }
    while (calls.load() < round) {
      std::this_thread::yield();
    }
    EXPECT_EQ(ncclCommAbort(comms[round % 2]), ncclSuccess);
    EXPECT_EQ(ncclCommAbort(comms[1 - round % 2]), ncclSuccess);
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
}

TEST(Abort, EndsAGrowthThatNewRanksDoNotJoin) {
  ncclComm_t comms[2];
  ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ncclSuccess);
  ncclUniqueId id;
  ASSERT_EQ(ncclCommGetUniqueId(comms[0], &id), ncclSuccess);
  std::atomic<int> begun{0};
  std::vector<std::thread> threads;
  for (const ncclComm_t comm : comms) {
    threads.emplace_back([&, comm] {
      ncclComm_t grown = nullptr;
      begun.fetch_add(1);
      EXPECT_NE(ncclCommGrow(comm, 3, comm == comms[0] ? &id : nullptr, -1, &grown, nullptr),
                ncclSuccess);
      EXPECT_EQ(grown, nullptr);
    });
  }
  while (begun.load() < 2) {
    std::this_thread::yield();
  }
  const auto begin = std::chrono::steady_clock::now();
  for (const ncclComm_t comm : comms) {
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(1))
      << "they waited for PLEXUS_BOOTSTRAP_TIMEOUT, 300 s";
}

TEST(Leave, ASplitNamesWhoHasLeftAndItsProcessWhereThereIsOnlyOne) {
  ncclComm_t comms[2];
  ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ncclSuccess);
  ASSERT_EQ(ncclCommDestroy(comms[0]), ncclSuccess);
  ncclComm_t child = nullptr;
  EXPECT_NE(ncclCommSplit(comms[1], 0, 0, &child, nullptr), ncclSuccess);
  EXPECT_THAT(ncclGetLastError(nullptr),
              testing::ContainsRegex("rank 0 \\([^ ]+:" + std::to_string(getpid()) +
                                     "\\) has destroyed a communicator"));
  EXPECT_EQ(ncclCommAbort(comms[1]), ncclSuccess);
}

TEST(Abort, EndsWorkOnAStream) {
  ncclComm_t comms[2];
  ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ncclSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(plexusStreamCreate(&stream), ncclSuccess);
  float value = 1;
  ASSERT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comms[0], stream), ncclSuccess);
  EXPECT_EQ(plexusStreamQuery(stream), ncclInProgress);
  EXPECT_EQ(ncclCommAbort(comms[0]), ncclSuccess);
  EXPECT_NE(plexusStreamSynchronize(stream), ncclSuccess);
  (void)plexusStreamDestroy(stream);
  EXPECT_EQ(ncclCommAbort(comms[1]), ncclSuccess);
}

}  // namespace
}  // namespace plexus
