// SPDX-License-Identifier: Apache-2.0
// Non-blocking communicators: the table of states in docs/compatibility.md, a test for each row.
#include <array>
#include <chrono>
#include <thread>

#include "tests/ranks/job.hpp"

namespace plexus::testing_job {
namespace {

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclInternalError;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  return state;
}

/// The state that follows ncclInProgress.
ncclResult_t next_state(ncclComm_t comm) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  ncclResult_t state = state_of(comm);
  while (state == ncclInProgress && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
    state = state_of(comm);
  }
  return state;
}

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

/// Ready communicators of `nranks` ranks of this process.
class States : public testing::Test {
 protected:
  std::vector<ncclComm_t> make(int nranks) {
    std::vector<ncclComm_t> comms(static_cast<size_t>(nranks));
    ncclUniqueId id;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    for (int rank = 0; rank < nranks; ++rank) {
      EXPECT_EQ(
          ncclCommInitRankConfig(&comms[static_cast<size_t>(rank)], nranks, id, rank, &config_),
          ncclInProgress);
    }
    for (const ncclComm_t comm : comms) {
      EXPECT_EQ(next_state(comm), ncclSuccess) << ncclGetLastError(comm);
    }
    return comms;
  }
  static void destroy(const std::vector<ncclComm_t>& comms) {
    for (const ncclComm_t comm : comms) {
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess) << ncclGetLastError(comm);
    }
  }
  /// All that is refused while a communicator is being made.
  static void expect_busy(ncclComm_t comm) {
    EXPECT_EQ(state_of(comm), ncclInProgress);
    float value = 1;
    int count = 0;
    ncclComm_t child = nullptr;
    ncclWindow_t window = nullptr;
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, nullptr),
              ncclInvalidArgument);
    EXPECT_EQ(ncclCommCount(comm, &count), ncclInvalidArgument);
    EXPECT_EQ(ncclCommSplit(comm, 0, 0, &child, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommWindowRegister(comm, &value, 4, &window, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclSignal(0, 0, 0, 0, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidArgument);
    EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
  }

  ncclConfig_t config_ = non_blocking();
};

TEST_F(States, InitIsInProgressUntilAllRanksHaveJoined) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::array<ncclComm_t, 2> comms{};
  ASSERT_EQ(ncclCommInitRankConfig(comms.data(), 2, id, 0, &config_), ncclInProgress);
  expect_busy(comms[0]);
  ASSERT_EQ(ncclCommInitRankConfig(&comms[1], 2, id, 1, &config_), ncclInProgress);
  EXPECT_EQ(next_state(comms[0]), ncclSuccess);
  EXPECT_EQ(next_state(comms[1]), ncclSuccess);
  destroy({comms[0], comms[1]});
}

TEST_F(States, InitEndsByAbort) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config_), ncclInProgress);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

TEST_F(States, InitThatFailsLeavesTheReason) {
  setenv("PLEXUS_BOOTSTRAP_TIMEOUT", "1", 1);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config_), ncclInProgress);
  EXPECT_EQ(next_state(comm), ncclTimeout) << "rank 1 never joins";
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  unsetenv("PLEXUS_BOOTSTRAP_TIMEOUT");
}

TEST_F(States, ASplitIsTheChildsStateNotItsParents) {
  const std::vector<ncclComm_t> parents = make(2);
  std::array<ncclComm_t, 2> children{};
  EXPECT_EQ(ncclCommSplit(parents[0], 0, 0, children.data(), nullptr), ncclInProgress);
  ASSERT_NE(children[0], nullptr) << "there at once, to be polled";
  EXPECT_EQ(state_of(parents[0]), ncclSuccess);
  expect_busy(children[0]);
  EXPECT_EQ(ncclCommSplit(parents[1], 0, 0, &children[1], nullptr), ncclInProgress);
  EXPECT_EQ(next_state(children[0]), ncclSuccess);
  EXPECT_EQ(next_state(children[1]), ncclSuccess);
  destroy({children[0], children[1]});
  destroy(parents);
}

TEST_F(States, ASplitWaitsForNoColor) {
  const std::vector<ncclComm_t> parents = make(3);
  // Two splits by one thread, rank after rank: in the second all change places.
  std::array<ncclComm_t, 3> first{};
  std::array<ncclComm_t, 3> second{};
  for (size_t rank = 0; rank < 3; ++rank) {
    const int color = rank == 1 ? NCCL_SPLIT_NOCOLOR : 7;
    EXPECT_EQ(ncclCommSplit(parents[rank], color, 0, &first[rank], nullptr),
              rank == 1 ? ncclSuccess : ncclInProgress);
    EXPECT_EQ(ncclCommSplit(parents[rank], 0, -static_cast<int>(rank), &second[rank], nullptr),
              ncclInProgress);
  }
  EXPECT_EQ(first[1], nullptr);
  for (const ncclComm_t comm : {first[0], first[2], second[0], second[1], second[2]}) {
    ASSERT_NE(comm, nullptr);
    EXPECT_EQ(next_state(comm), ncclSuccess) << ncclGetLastError(comm);
  }
  int count = 0;
  int rank = 0;
  EXPECT_EQ(ncclCommCount(first[2], &count), ncclSuccess);
  EXPECT_EQ(ncclCommUserRank(second[2], &rank), ncclSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(rank, 0);
  destroy({first[0], first[2], second[0], second[1], second[2]});
  destroy(parents);
}

TEST_F(States, ASplitEndsByAbortOfTheChildOrTheParent) {
  for (const bool aborts_parent : {false, true}) {
    const std::vector<ncclComm_t> parents = make(2);
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommSplit(parents[0], 0, 0, &child, nullptr), ncclInProgress);
    if (aborts_parent) {
      EXPECT_EQ(ncclCommAbort(parents[0]), ncclSuccess);
      EXPECT_NE(next_state(child), ncclSuccess);
      EXPECT_EQ(ncclCommAbort(child), ncclSuccess);
    } else {
      EXPECT_EQ(ncclCommAbort(child), ncclSuccess);
      ncclComm_t other = nullptr;  // learns of it
      EXPECT_EQ(ncclCommSplit(parents[1], 0, 0, &other, nullptr), ncclInProgress);
      EXPECT_NE(next_state(other), ncclSuccess);
      EXPECT_EQ(ncclCommAbort(other), ncclSuccess);
      EXPECT_EQ(ncclCommAbort(parents[0]), ncclSuccess);
    }
    EXPECT_EQ(ncclCommAbort(parents[1]), ncclSuccess);
  }
}

TEST_F(States, AShrinkIsLikeASplit) {
  const std::vector<ncclComm_t> parents = make(3);
  std::array<ncclComm_t, 2> children{};
  int excluded = 2;
  ASSERT_EQ(ncclCommShrink(parents[0], &excluded, 1, children.data(), nullptr, 0), ncclInProgress);
  expect_busy(children[0]);
  ASSERT_EQ(ncclCommShrink(parents[1], &excluded, 1, &children[1], nullptr, 0), ncclInProgress);
  EXPECT_EQ(next_state(children[0]), ncclSuccess);
  EXPECT_EQ(next_state(children[1]), ncclSuccess);
  destroy({children[0], children[1]});
  destroy(parents);
}

TEST_F(States, AGrowIsInProgressUntilTheNewRanksHaveJoined) {
  const std::vector<ncclComm_t> parents = make(1);
  ncclUniqueId id;
  ASSERT_EQ(ncclCommGetUniqueId(parents[0], &id), ncclSuccess);
  std::array<ncclComm_t, 2> grown{};
  ASSERT_EQ(ncclCommGrow(parents[0], 2, &id, -1, grown.data(), nullptr), ncclInProgress);
  expect_busy(grown[0]);
  ASSERT_EQ(ncclCommGrow(nullptr, 2, &id, 1, &grown[1], &config_), ncclInProgress);
  EXPECT_EQ(next_state(grown[0]), ncclSuccess);
  EXPECT_EQ(next_state(grown[1]), ncclSuccess);
  destroy({grown[0], grown[1]});
  destroy(parents);
}

TEST_F(States, FinalizeIsInProgressWhileCallsAreOnStreams) {
  const std::vector<ncclComm_t> comms = make(2);
  std::array<cudaStream_t, 2> streams{};
  std::array<float, 2> values{1, 2};
  for (size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(plexusStreamCreate(&streams[rank]), ncclSuccess);
  }
  ASSERT_EQ(
      ncclAllReduce(values.data(), values.data(), 1, ncclFloat, ncclSum, comms[0], streams[0]),
      ncclSuccess);
  EXPECT_EQ(state_of(comms[0]), ncclSuccess) << "a call on a stream does not change the state";
  EXPECT_EQ(ncclCommFinalize(comms[0]), ncclInProgress);
  EXPECT_EQ(state_of(comms[0]), ncclInProgress);
  ASSERT_EQ(ncclAllReduce(&values[1], &values[1], 1, ncclFloat, ncclSum, comms[1], streams[1]),
            ncclSuccess);
  EXPECT_EQ(next_state(comms[0]), ncclSuccess);
  EXPECT_EQ(values[0], 3);
  EXPECT_EQ(plexusStreamSynchronize(streams[1]), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(comms[1]), ncclSuccess) << "nothing is under way";
  EXPECT_EQ(ncclCommFinalize(comms[1]), ncclInvalidArgument) << "a second time";
  destroy(comms);
  for (const cudaStream_t stream : streams) {
    EXPECT_EQ(plexusStreamDestroy(stream), ncclSuccess);
  }
}

TEST_F(States, WindowsAreThereAtOnce) {
  const std::vector<ncclComm_t> comms = make(2);
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 4096), ncclSuccess);
  ncclWindow_t window = nullptr;
  EXPECT_EQ(ncclCommWindowRegister(comms[0], memory, 4096, &window, 0), ncclSuccess);
  EXPECT_NE(window, nullptr);
  EXPECT_EQ(state_of(comms[0]), ncclSuccess);
  EXPECT_EQ(ncclCommWindowDeregister(comms[0], window), ncclSuccess);
  destroy(comms);
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
}

TEST_F(States, AGroupOfCallsEndsWithItsResult) {
  const std::vector<ncclComm_t> comms = make(2);
  std::array<float, 2> values{1, 2};
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(
        ncclAllReduce(&values[rank], &values[rank], 1, ncclFloat, ncclSum, comms[rank], nullptr),
        ncclSuccess);
  }
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(values, (std::array<float, 2>{3, 3}));
  EXPECT_EQ(state_of(comms[0]), ncclSuccess);
  destroy(comms);
}

TEST_F(States, AGroupOfInitsIsInProgressAtItsEnd) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::array<ncclComm_t, 2> comms{};
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    const ncclResult_t begun =
        ncclCommInitRankConfig(&comms[static_cast<size_t>(rank)], 2, id, rank, &config_);
    EXPECT_TRUE(begun == ncclSuccess || begun == ncclInProgress) << begun;
  }
  EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
  for (const ncclComm_t comm : comms) {
    ASSERT_NE(comm, nullptr);
    EXPECT_EQ(next_state(comm), ncclSuccess);
  }
  destroy({comms[0], comms[1]});
}

}  // namespace
}  // namespace plexus::testing_job
