// SPDX-License-Identifier: Apache-2.0
// After its last call a rank may destroy its communicator at once, whatever the other ranks are
// still doing.
#include <array>
#include <atomic>
#include <cstdlib>
#include <numeric>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

struct Call {
  const char* name;
  std::function<ncclResult_t(int rank, const int32_t* in, int32_t* out, size_t count, ncclComm_t)>
      run;
};

constexpr int kRanks = 3;

const std::vector<Call>& rooted_calls() {
  static const std::vector<Call> calls = {
      {"broadcast",
       [](int, const int32_t* in, int32_t* out, size_t count, ncclComm_t comm) {
         return ncclBroadcast(in, out, count, ncclInt32, 0, comm, nullptr);
       }},
      {"reduce",
       [](int, const int32_t* in, int32_t* out, size_t count, ncclComm_t comm) {
         return ncclReduce(in, out, count, ncclInt32, ncclSum, 0, comm, nullptr);
       }},
      {"gather",
       [](int, const int32_t* in, int32_t* out, size_t count, ncclComm_t comm) {
         return ncclGather(in, out, count, ncclInt32, 0, comm, nullptr);
       }},
      {"scatter",
       [](int, const int32_t* in, int32_t* out, size_t count, ncclComm_t comm) {
         return ncclScatter(in, out, count, ncclInt32, 0, comm, nullptr);
       }},
      {"send to the next",
       [](int rank, const int32_t* in, int32_t* out, size_t count, ncclComm_t comm) {
         if (rank + 1 == kRanks) {
           return ncclRecv(out, count, ncclInt32, 0, comm, nullptr);
         }
         return rank == 0 ? ncclSend(in, count, ncclInt32, kRanks - 1, comm, nullptr) : ncclSuccess;
       }},
  };
  return calls;
}

/// The ranks start one after the other in the order `order`, each after the previous one has
/// destroyed its communicator, if the call permits that.
void run_in_turn(const Call& call, size_t count, const std::array<int, kRanks>& order) {
  std::array<ncclComm_t, kRanks> comms{};
  ASSERT_EQ(ncclCommInitAll(comms.data(), kRanks, nullptr), ncclSuccess);
  std::array<std::atomic<bool>, kRanks> begun{};
  std::vector<std::thread> threads;
  for (size_t place = 0; place < order.size(); ++place) {
    threads.emplace_back([&, place] {
      const auto rank = static_cast<size_t>(order[place]);
      std::vector<int32_t> in(count * kRanks, 1);
      std::vector<int32_t> out(count * kRanks);
      if (place > 0) {
        begun[place - 1].wait(false);
      }
      // Only a small message does not need the other end, so that the previous rank can leave
      // first.
      if (count > 1) {
        begun[place].store(true);
        begun[place].notify_all();
      }
      EXPECT_EQ(call.run(order[place], in.data(), out.data(), count, comms[rank]), ncclSuccess)
          << call.name << " of " << count << " on rank " << rank << ": "
          << ncclGetLastError(nullptr);
      EXPECT_EQ(ncclCommDestroy(comms[rank]), ncclSuccess);
      begun[place].store(true);
      begun[place].notify_all();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(Leave, TheRootOfABroadcastMayBeGoneBeforeTheOthersCome) {
  for (const size_t count : {size_t{1}, size_t{40000}}) {
    run_in_turn(rooted_calls()[0], count, {0, 1, 2});
    run_in_turn(rooted_calls()[3], count, {0, 1, 2});
    run_in_turn(rooted_calls()[4], count, {0, 1, 2});
  }
}

TEST(Leave, TheLeavesOfAReductionMayBeGoneBeforeTheRootComes) {
  for (const size_t count : {size_t{1}, size_t{40000}}) {
    run_in_turn(rooted_calls()[1], count, {2, 1, 0});
    run_in_turn(rooted_calls()[2], count, {2, 1, 0});
  }
}

/// A root of a broadcast waits for nobody, and is gone when the others make another call, over
/// connections that it never made.
TEST(Leave, ARankThatLeftAfterAnotherCallIsNamed) {
  setenv("NCCL_ALGO", "broadcast:tree;reducescatter:pat", 1);  // NOLINT(concurrency-mt-unsafe)
  std::array<ncclComm_t, kRanks> comms{};
  ASSERT_EQ(ncclCommInitAll(comms.data(), kRanks, nullptr), ncclSuccess);
  unsetenv("NCCL_ALGO");  // NOLINT(concurrency-mt-unsafe)
  std::vector<int32_t> values(100, 1);
  constexpr int kLeaver = kRanks - 1;
  EXPECT_EQ(
      ncclBroadcast(values.data(), values.data(), 1, ncclInt32, kLeaver, comms[kLeaver], nullptr),
      ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comms[kLeaver]), ncclSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kLeaver; ++rank) {
    threads.emplace_back([&, rank] {
      std::vector<int32_t> in(kRanks, 1);
      int32_t out = 0;
      const ncclComm_t comm = comms[static_cast<size_t>(rank)];
      EXPECT_EQ(ncclReduceScatter(in.data(), &out, 1, ncclInt32, ncclSum, comm, nullptr),
                ncclInvalidUsage);
      EXPECT_THAT(ncclGetLastError(comm), testing::HasSubstr("the ranks' calls differ"));
      EXPECT_THAT(ncclGetLastError(comm), testing::HasSubstr("rank 2 made broadcast("));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(ncclCommAbort(comms[0]), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(comms[1]), ncclSuccess);
}

TEST(Leave, ChildrenThatAreUsedOnceAndDestroyedAtOnce) {
  constexpr int kLoops = 200;
  testing_job::Job job(kRanks);
  const auto results = job.run_in_threads([&](int rank, ncclComm_t world) {
    std::vector<int32_t> in(kRanks, 1);
    std::vector<int32_t> out(kRanks);
    for (int loop = 0; loop < kLoops; ++loop) {
      ncclComm_t child = nullptr;
      const int place = (rank * 2 + loop) % kRanks;
      ncclResult_t result = ncclCommSplit(world, 0, place, &child, nullptr);
      if (result == ncclSuccess) {
        int of_child = 0;
        result = ncclCommUserRank(child, &of_child);
        const Call& call = rooted_calls()[static_cast<size_t>(loop) % 4];
        result =
            result == ncclSuccess ? call.run(of_child, in.data(), out.data(), 1, child) : result;
        EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
      }
      if (result != ncclSuccess) {
        return result;
      }
    }
    return ncclSuccess;
  });
  EXPECT_EQ(results, std::vector<ncclResult_t>(kRanks, ncclSuccess)) << ncclGetLastError(nullptr);
}

}  // namespace
}  // namespace plexus
