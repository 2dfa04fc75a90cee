// SPDX-License-Identifier: Apache-2.0
// The lifetime of communicators over the real bootstrap: ranks are threads that join with a unique
// id.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <future>
#include <malloc.h>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

/// `body(rank, comm)` on every rank of a communicator made by unique id; the caller destroys it.
void run_job(int nranks, const std::function<void(int, ncclComm_t)>& body) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess) << ncclGetLastError(nullptr);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nranks; ++rank) {
    threads.emplace_back([&, rank] {
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitRank(&comm, nranks, id, rank), ncclSuccess)
          << ncclGetLastError(nullptr);
      body(rank, comm);
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

int sum_of_ranks(ncclComm_t comm, int value) {
  int result = value;
  EXPECT_EQ(ncclAllReduce(&value, &result, 1, ncclInt32, ncclSum, comm, nullptr), ncclSuccess)
      << ncclGetLastError(nullptr);
  return result;
}

TEST(Communicators, UniqueIdBringsRanksTogether) {
  run_job(5, [](int rank, ncclComm_t comm) {
    int count = 0;
    int user_rank = -1;
    int device = 0;
    EXPECT_EQ(ncclCommCount(comm, &count), ncclSuccess);
    EXPECT_EQ(ncclCommUserRank(comm, &user_rank), ncclSuccess);
    EXPECT_EQ(ncclCommCuDevice(comm, &device), ncclSuccess);
    EXPECT_EQ(count, 5);
    EXPECT_EQ(user_rank, rank);
    EXPECT_EQ(device, -1);
    EXPECT_EQ(sum_of_ranks(comm, rank), 10);
  });
}

TEST(Communicators, OneRankAlone) {
  run_job(1, [](int, ncclComm_t comm) { EXPECT_EQ(sum_of_ranks(comm, 4), 4); });
}

TEST(Communicators, SplitByColorOrdersByKey) {
  run_job(6, [](int rank, ncclComm_t comm) {
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, rank % 2, -rank, &child, nullptr), ncclSuccess)
        << ncclGetLastError(nullptr);
    int child_rank = -1;
    ASSERT_EQ(ncclCommUserRank(child, &child_rank), ncclSuccess);
    EXPECT_EQ(child_rank, 2 - rank / 2);
    EXPECT_EQ(sum_of_ranks(child, rank), rank % 2 == 0 ? 6 : 9);
    EXPECT_EQ(sum_of_ranks(comm, rank), 15);
    EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  });
}

TEST(Communicators, SplitWithoutColorGivesNull) {
  run_job(3, [](int rank, ncclComm_t comm) {
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, rank == 1 ? NCCL_SPLIT_NOCOLOR : 0, 0, &child, nullptr),
              ncclSuccess);
    EXPECT_EQ(child == nullptr, rank == 1);
    if (child != nullptr) {
      EXPECT_EQ(sum_of_ranks(child, rank), 2);
      EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
    }
  });
}

TEST(Communicators, SplitOfRanksOfOneThreadWorksInAGroup) {
  std::array<ncclComm_t, 4> parents{};
  std::array<ncclComm_t, 4> children{};
  ASSERT_EQ(ncclCommInitAll(parents.data(), 4, nullptr), ncclSuccess);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < 4; ++rank) {
    const auto r = static_cast<size_t>(rank);
    ASSERT_EQ(ncclCommSplit(parents[r], rank / 2, rank, &children[r], nullptr), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  for (const ncclComm_t child : children) {
    int count = 0;
    ASSERT_EQ(ncclCommCount(child, &count), ncclSuccess);
    EXPECT_EQ(count, 2);
    EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  }
  for (const ncclComm_t parent : parents) {
    EXPECT_EQ(ncclCommDestroy(parent), ncclSuccess);
  }
}

TEST(Communicators, ShrinkLeavesOutRanks) {
  run_job(4, [](int rank, ncclComm_t comm) {
    if (rank == 2) {
      return;
    }
    ncclComm_t child = nullptr;
    int excluded[] = {2};
    ASSERT_EQ(ncclCommShrink(comm, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclSuccess)
        << ncclGetLastError(nullptr);
    EXPECT_EQ(sum_of_ranks(child, rank), 4);
    EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  });
}

/// After a shrink without some ranks, a split of the parent by all ranks and calls on it still
/// work.
void check_parent(ncclComm_t parent, int rank) {
  ncclComm_t child = nullptr;
  ASSERT_EQ(ncclCommSplit(parent, 0, rank, &child, nullptr), ncclSuccess)
      << ncclGetLastError(nullptr);
  EXPECT_EQ(sum_of_ranks(child, rank), 6);
  EXPECT_EQ(sum_of_ranks(parent, rank), 6);
  EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
}

/// The sum over the ranks other than `excluded`; 0 on that one.
int sum_without(ncclComm_t parent, int rank, int excluded) {
  if (rank == excluded) {
    return 0;
  }
  ncclComm_t child = nullptr;
  EXPECT_EQ(ncclCommShrink(parent, &excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclSuccess)
      << ncclGetLastError(nullptr);
  const int sum = sum_of_ranks(child, rank);
  EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  return sum;
}

TEST(Communicators, ShrinksAndSplitsOfOneParentFollowEachOther) {
  run_job(4, [](int rank, ncclComm_t comm) {
    for (const int excluded : {3, 3, 0, 2, 3, 0}) {
      EXPECT_EQ(sum_without(comm, rank, excluded), rank == excluded ? 0 : 6 - excluded);
      check_parent(comm, rank);
    }
    EXPECT_EQ(sum_without(comm, rank, 1), rank == 1 ? 0 : 5);
    EXPECT_EQ(sum_without(comm, rank, 2), rank == 2 ? 0 : 4);
    check_parent(comm, rank);
  });
}

TEST(Communicators, ShrinksOfShrinksAndTheirSplitsFollowEachOther) {
  run_job(5, [](int rank, ncclComm_t comm) {
    if (rank < 4) {
      ncclComm_t four = nullptr;
      int last = 4;
      ASSERT_EQ(ncclCommShrink(comm, &last, 1, &four, nullptr, NCCL_SHRINK_DEFAULT), ncclSuccess);
      EXPECT_EQ(sum_without(four, rank, 1), rank == 1 ? 0 : 5);
      check_parent(four, rank);
      EXPECT_EQ(sum_without(four, rank, 1), rank == 1 ? 0 : 5);
      EXPECT_EQ(ncclCommDestroy(four), ncclSuccess);
    }
    EXPECT_EQ(sum_without(comm, rank, 0), rank == 0 ? 0 : 10);
    EXPECT_EQ(sum_of_ranks(comm, rank), 10);
  });
}

TEST(Communicators, ARankThatDoesNotSplitIsNamed) {
  setenv("PLEXUS_BOOTSTRAP_TIMEOUT", "1", 1);
  std::atomic<int> heard{0};
  run_job(3, [&](int rank, ncclComm_t comm) {
    if (rank == 1) {
      while (heard < 2) {
        std::this_thread::yield();
      }
      return;
    }
    ncclComm_t child = nullptr;
    EXPECT_EQ(ncclCommSplit(comm, 0, rank, &child, nullptr), ncclTimeout);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("waiting for rank 1 ("));
    ++heard;
  });
  unsetenv("PLEXUS_BOOTSTRAP_TIMEOUT");
}

TEST(Communicators, ScalableInitTakesSeveralIds) {
  std::array<ncclUniqueId, 2> ids;
  for (ncclUniqueId& id : ids) {
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      ncclComm_t comm = nullptr;
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      ASSERT_EQ(ncclCommInitRankScalable(&comm, 4, rank, 2, ids.data(), &config), ncclSuccess)
          << ncclGetLastError(nullptr);
      EXPECT_EQ(sum_of_ranks(comm, 1), 4);
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(Communicators, NonBlockingInitIsPolled) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ncclComm_t comm = nullptr;
      const ncclResult_t started = ncclCommInitRankConfig(&comm, 2, id, rank, &config);
      ASSERT_TRUE(started == ncclInProgress || started == ncclSuccess);
      ASSERT_NE(comm, nullptr);
      ncclResult_t state = ncclInProgress;
      while (state == ncclInProgress) {
        ASSERT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
        std::this_thread::yield();
      }
      EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(nullptr);
      EXPECT_EQ(sum_of_ranks(comm, rank), 1);
      EXPECT_EQ(ncclCommFinalize(comm), ncclSuccess);
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(Communicators, AbortEndsAnInitThatNobodyJoins) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  int count = 0;
  EXPECT_EQ(ncclCommCount(comm, &count), ncclInvalidArgument);
  EXPECT_EQ(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclInvalidArgument);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

TEST(Communicators, RankThatNeverComesIsNamed) {
  setenv("PLEXUS_BOOTSTRAP_TIMEOUT", "1", 1);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, 3, id, 0), ncclTimeout);
  EXPECT_EQ(comm, nullptr);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("rank 1, 2"));
  unsetenv("PLEXUS_BOOTSTRAP_TIMEOUT");
}

TEST(Communicators, DamagedUniqueIdIsRefused) {
  ncclUniqueId id{};
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidArgument);
}

TEST(Communicators, BadSettingFailsInitAndIsNamed) {
  setenv("NCCL_BUFFSIZE", "lots", 1);
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("NCCL_BUFFSIZE=lots"));
  unsetenv("NCCL_BUFFSIZE");
}

TEST(Communicators, RevokedOneCanBeSplit) {
  run_job(2, [](int rank, ncclComm_t comm) {
    EXPECT_EQ(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclSuccess);
    int value = 1;
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr),
              ncclInvalidUsage);
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, 0, rank, &child, nullptr), ncclSuccess)
        << ncclGetLastError(nullptr);
    EXPECT_EQ(sum_of_ranks(child, 1), 2);
    EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  });
}

TEST(Communicators, RevokeFromAnotherThreadEndsCallsUnderWay) {
  constexpr int kRanks = 2;
  constexpr int kCallsBefore = 10;
  std::array<std::atomic<int>, kRanks> calls{};
  run_job(kRanks, [&](int rank, ncclComm_t comm) {
    std::array<ncclResult_t, 2> revoked{};
    std::vector<std::thread> revokers;
    for (ncclResult_t& result : revoked) {  // two at once: one of them does it
      revokers.emplace_back([&, comm] {
        while (std::any_of(calls.begin(), calls.end(),
                           [](const auto& each) { return each.load() < kCallsBefore; })) {
          std::this_thread::yield();
        }
        result = ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
      });
    }
    ncclResult_t ended = ncclSuccess;
    while (ended == ncclSuccess) {
      int value = 1;
      ended = ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr);
      ++calls[static_cast<size_t>(rank)];
    }
    EXPECT_EQ(ended, ncclInvalidUsage) << ncclGetLastError(nullptr);
    // The text is the process's last, which may be that of the revoker that came second.
    EXPECT_THAT(ncclGetLastError(nullptr),
                AnyOf(HasSubstr("was revoked"), HasSubstr("revoked before")));
    for (std::thread& thread : revokers) {
      thread.join();
    }
    EXPECT_THAT(revoked, testing::UnorderedElementsAre(ncclSuccess, ncclInvalidArgument));
    ncclResult_t state = ncclInternalError;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    EXPECT_EQ(state, ncclSuccess);
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, 0, rank, &child, nullptr), ncclSuccess)
        << ncclGetLastError(nullptr);
    EXPECT_EQ(sum_of_ranks(child, 1), kRanks);
    EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  });
}

void check_grown(ncclComm_t grown, int rank, int nranks) {
  int mine = -1;
  EXPECT_EQ(ncclCommUserRank(grown, &mine), ncclSuccess);
  EXPECT_EQ(mine, rank) << "old ranks keep their numbers";
  EXPECT_EQ(sum_of_ranks(grown, rank), nranks * (nranks - 1) / 2);
  EXPECT_EQ(ncclCommDestroy(grown), ncclSuccess);
}

TEST(Communicators, GrowByNewRanksWhoeverMadeTheId) {
  constexpr int kGrown = 4;
  for (const bool passes_id : {false, true}) {  // NCCL allows both for the rank that made it
    std::promise<ncclUniqueId> promise;
    const std::shared_future<ncclUniqueId> reported = promise.get_future().share();
    std::vector<std::thread> newcomers;
    for (int rank = 2; rank < kGrown; ++rank) {
      newcomers.emplace_back([rank, reported] {
        const ncclUniqueId id = reported.get();
        ncclComm_t grown = nullptr;
        ASSERT_EQ(ncclCommGrow(nullptr, kGrown, &id, rank, &grown, nullptr), ncclSuccess)
            << ncclGetLastError(nullptr);
        check_grown(grown, rank, kGrown);
      });
    }
    run_job(2, [&](int rank, ncclComm_t comm) {
      ncclUniqueId id;
      if (rank == 1) {
        ASSERT_EQ(ncclCommGetUniqueId(comm, &id), ncclSuccess) << ncclGetLastError(nullptr);
        promise.set_value(id);
      }
      ncclComm_t grown = nullptr;
      ASSERT_EQ(
          ncclCommGrow(comm, kGrown, rank == 1 && passes_id ? &id : nullptr, -1, &grown, nullptr),
          ncclSuccess)
          << ncclGetLastError(nullptr);
      check_grown(grown, rank, kGrown);
      EXPECT_EQ(sum_of_ranks(comm, rank), 1) << "the parent can still be used";
    });
    for (std::thread& thread : newcomers) {
      thread.join();
    }
  }
}

TEST(Communicators, LastErrorOfOneThatFailedIsItsOwn) {
  run_job(2, [](int rank, ncclComm_t comm) {
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, 0, rank, &child, nullptr), ncclSuccess);
    if (rank == 0) {
      EXPECT_EQ(ncclCommAbort(child), ncclSuccess);
      return;
    }
    int value = 1;
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, child, nullptr),
              ncclRemoteError);
    EXPECT_EQ(ncclCommDestroy(nullptr), ncclSuccess);
    EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument);
    EXPECT_THAT(ncclGetLastError(child), HasSubstr("rank 0 called ncclCommAbort"));
    EXPECT_STREQ(ncclGetLastError(nullptr), "version is NULL");
    EXPECT_STREQ(ncclGetLastError(comm), "version is NULL") << "it has not failed";
    EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  });
}

TEST(Communicators, GrowWithoutAnIdFailsOnAllRanks) {
  run_job(2, [](int rank, ncclComm_t comm) {
    ncclComm_t grown = nullptr;
    EXPECT_EQ(ncclCommGrow(comm, 3, nullptr, -1, &grown, nullptr), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("must call ncclCommGetUniqueId"));
    EXPECT_EQ(sum_of_ranks(comm, rank), 1) << "the parent can still be used";
  });
}

TEST(Communicators, GrowWithDifferentIdsFailsOnAllRanks) {
  run_job(3, [](int rank, ncclComm_t comm) {
    ncclUniqueId id;
    if (rank > 0) {
      ASSERT_EQ(ncclCommGetUniqueId(comm, &id), ncclSuccess);
    }
    ncclComm_t grown = nullptr;
    EXPECT_EQ(ncclCommGrow(comm, 4, nullptr, -1, &grown, nullptr), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("ranks 1 and 2 call ncclCommGrow"));
  });
}

TEST(Communicators, ChildrenThatAreDestroyedLeaveNoMemoryBehind) {
  constexpr int kChildren = 3000;
  testing_job::Job job(1);
  const auto make_children = [&] {
    for (int i = 0; i < kChildren; ++i) {
      ncclComm_t child = nullptr;
      ASSERT_EQ(ncclCommSplit(job.comm(0), 0, 0, &child, nullptr), ncclSuccess);
      ASSERT_EQ(ncclCommDestroy(child), ncclSuccess);
    }
  };
  make_children();  // objects made on first use are kept
  const size_t before = mallinfo2().uordblks;
  make_children();
  const size_t after = mallinfo2().uordblks;
  EXPECT_LT(after, before + size_t{100} * kChildren) << "of " << kChildren << " children";
}

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  return state;
}

ncclResult_t settled_state_of(ncclComm_t comm) {
  ncclResult_t state = state_of(comm);
  for (; state == ncclInProgress; state = state_of(comm)) {
    std::this_thread::yield();
  }
  return state;
}

TEST(Communicators, NonBlockingFinalizeAndDestroyDoNotWait) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  std::array<ncclComm_t, 2> comms{};
  ASSERT_EQ(ncclCommInitRankConfig(comms.data(), 2, id, 0, &config), ncclInProgress);
  EXPECT_EQ(ncclCommDestroy(comms[0]), ncclInvalidArgument) << "as NCCL's, during init";
  ASSERT_EQ(ncclCommInitRankConfig(&comms[1], 2, id, 1, &config), ncclInProgress);
  for (const ncclComm_t comm : comms) {
    ASSERT_EQ(settled_state_of(comm), ncclSuccess) << ncclGetLastError(nullptr);
  }
  cudaStream_t stream = nullptr;
  ASSERT_EQ(plexusStreamCreate(&stream), ncclSuccess);
  float received = 0;
  ASSERT_EQ(ncclRecv(&received, 1, ncclFloat, 1, comms[0], stream), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(comms[0]), ncclInProgress);
  EXPECT_EQ(state_of(comms[0]), ncclInProgress);
  EXPECT_EQ(ncclCommDestroy(comms[0]), ncclInvalidArgument);
  const float sent = 7;
  ASSERT_EQ(ncclSend(&sent, 1, ncclFloat, 0, comms[1], nullptr), ncclSuccess);
  EXPECT_EQ(settled_state_of(comms[0]), ncclSuccess);
  EXPECT_EQ(received, 7);
  for (const ncclComm_t comm : comms) {
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
  EXPECT_EQ(plexusStreamDestroy(stream), ncclSuccess);
}

// In NCCL they share the flag that abort sets.
TEST(Communicators, AbortOfOneEndsCallsOfThoseThatShareItsResources) {
  for (const bool is_parents_wish : {false, true}) {
    for (const bool aborts_child : {false, true}) {
      std::promise<void> has_ended;
      std::shared_future<void> ended = has_ended.get_future().share();
      ncclUniqueId id;
      ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
      std::vector<std::thread> threads;
      for (int rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
          ncclConfig_t shares = NCCL_CONFIG_INITIALIZER;
          shares.splitShare = 1;
          ncclConfig_t plain = NCCL_CONFIG_INITIALIZER;
          ncclComm_t parent = nullptr;
          ncclComm_t child = nullptr;
          ASSERT_EQ(
              ncclCommInitRankConfig(&parent, 2, id, rank, is_parents_wish ? &shares : &plain),
              ncclSuccess);
          ASSERT_EQ(ncclCommSplit(parent, 0, rank, &child, is_parents_wish ? &plain : &shares),
                    ncclSuccess);
          if (rank == 0) {
            cudaStream_t stream = nullptr;
            ASSERT_EQ(plexusStreamCreate(&stream), ncclSuccess);
            float value = 0;
            ASSERT_EQ(ncclRecv(&value, 1, ncclFloat, 1, aborts_child ? parent : child, stream),
                      ncclSuccess);
            EXPECT_EQ(ncclCommAbort(aborts_child ? child : parent), ncclSuccess);
            EXPECT_NE(plexusStreamSynchronize(stream), ncclSuccess);
            plexusStreamDestroy(stream);
            EXPECT_EQ(ncclCommAbort(aborts_child ? parent : child), ncclSuccess);
            has_ended.set_value();
          } else {
            ended.wait();
            EXPECT_EQ(ncclCommAbort(child), ncclSuccess);
            EXPECT_EQ(ncclCommAbort(parent), ncclSuccess);
          }
        });
      }
      for (std::thread& thread : threads) {
        thread.join();
      }
    }
  }
}

TEST(Communicators, AShrinkThatAbortsLeavesTheParentWithoutAnError) {
  std::atomic<int> left{0};
  run_job(3, [&](int rank, ncclComm_t comm) {
    if (rank < 2) {
      int excluded = 2;
      ncclComm_t child = nullptr;
      ASSERT_EQ(ncclCommShrink(comm, &excluded, 1, &child, nullptr, NCCL_SHRINK_ABORT), ncclSuccess)
          << ncclGetLastError(nullptr);
      EXPECT_EQ(state_of(comm), ncclSuccess);
      EXPECT_EQ(sum_of_ranks(child, 1), 2);
      int value = 0;
      EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr),
                ncclInvalidUsage);
      EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
      EXPECT_EQ(state_of(comm), ncclSuccess);
    }
    ++left;
    while (left.load() < 3) {
      std::this_thread::yield();
    }
  });
}

}  // namespace
}  // namespace plexus
