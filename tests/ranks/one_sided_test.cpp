// SPDX-License-Identifier: Apache-2.0
// ncclPutSignal, ncclSignal and ncclWaitSignal between ranks of this process: through memory, and
// by messages (ranks that only a network connects); in order, in groups, on streams; wrong calls.
#include <array>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/ranks/job.hpp"

namespace plexus::testing_job {
namespace {

using testing::HasSubstr;

/// A window of `count` integers on every rank.
class Windows {
 public:
  Windows(Job& job, size_t count, int flags = NCCL_WIN_COLL_SYMMETRIC) : job_(job) {
    for (int rank = 0; rank < job.nranks(); ++rank) {
      void* memory = nullptr;
      EXPECT_EQ(ncclMemAlloc(&memory, count * sizeof(int32_t)), ncclSuccess);
      memory_.push_back(static_cast<int32_t*>(memory));
      ncclWindow_t window = nullptr;
      EXPECT_EQ(
          ncclCommWindowRegister(job.comm(rank), memory, count * sizeof(int32_t), &window, flags),
          ncclSuccess)
          << ncclGetLastError(nullptr);
      windows_.push_back(window);
    }
  }
  ~Windows() {
    for (int rank = 0; rank < job_.nranks(); ++rank) {
      EXPECT_EQ(ncclCommWindowDeregister(job_.comm(rank), window(rank)), ncclSuccess);
      EXPECT_EQ(ncclMemFree(memory(rank)), ncclSuccess);
    }
  }
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;
  [[nodiscard]] int32_t* memory(int rank) const { return memory_[static_cast<size_t>(rank)]; }
  [[nodiscard]] ncclWindow_t window(int rank) const { return windows_[static_cast<size_t>(rank)]; }

 private:
  Job& job_;
  std::vector<int32_t*> memory_;
  std::vector<ncclWindow_t> windows_;
};

ncclWaitSignalDesc_t from(int peer, int count = 1, int signal = 0, int context = 0) {
  return {.opCnt = count, .peer = peer, .sigIdx = signal, .ctx = context};
}

ncclResult_t wait_for(ncclComm_t comm, ncclWaitSignalDesc_t what, cudaStream_t stream = nullptr) {
  return ncclWaitSignal(1, &what, comm, stream);
}

void expect_all(const std::vector<ncclResult_t>& results, ncclResult_t result) {
  EXPECT_EQ(results, std::vector<ncclResult_t>(results.size(), result))
      << ncclGetLastError(nullptr);
}

/// Between which ranks.
class OneSided : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "Messages") {
      setenv("NCCL_SHM_DISABLE", "1", 1);
      setenv("NCCL_P2P_DISABLE", "1", 1);
    }
    setenv("NCCL_NUM_RMA_CTX", "3", 1);
  }
  void TearDown() override {
    unsetenv("NCCL_SHM_DISABLE");
    unsetenv("NCCL_P2P_DISABLE");
    unsetenv("NCCL_NUM_RMA_CTX");
  }
};

TEST_P(OneSided, DataIsThereWhenItsSignalIs) {
  Job job(3);
  constexpr size_t kCount = 400'000;  // by messages: several pieces
  Windows windows(job, 2 * kCount);
  for (int round = 0; round < 5; ++round) {
    expect_all(job.run_in_threads([&](int rank, ncclComm_t comm) {
      const int next = (rank + 1) % 3;
      const int prev = (rank + 2) % 3;
      int32_t* const mine = windows.memory(rank);
      std::iota(mine, mine + kCount, 1000 * round + rank);
      const ncclResult_t put = ncclPutSignal(mine, kCount, ncclInt32, next, windows.window(rank),
                                             kCount * sizeof(int32_t), 0, 0, 0, comm, nullptr);
      const ncclResult_t waited = wait_for(comm, from(prev));
      for (size_t i = 0; i < kCount; ++i) {
        if (mine[kCount + i] != 1000 * round + prev + static_cast<int32_t>(i)) {
          ADD_FAILURE() << "rank " << rank << " element " << i << " is " << mine[kCount + i];
          break;
        }
      }
      // Before the next round overwrites what the neighbour reads.
      const ncclResult_t reported = ncclSignal(prev, 0, 1, 0, comm, nullptr);
      const ncclResult_t free = wait_for(comm, from(next, 1, 0, 1));
      return put != ncclSuccess        ? put
             : waited != ncclSuccess   ? waited
             : reported != ncclSuccess ? reported
                                       : free;
    }),
               ncclSuccess);
  }
}

TEST_P(OneSided, ATargetThatCallsNothingGetsItsData) {
  Job job(2);
  Windows windows(job, 8);
  windows.memory(0)[0] = 77;
  ASSERT_EQ(ncclPutSignal(windows.memory(0), 1, ncclInt32, 1, windows.window(0), 4, 0, 0, 0,
                          job.comm(0), nullptr),
            ncclSuccess);
  // All that came before from one source and context is there with the last signal.
  ASSERT_EQ(ncclSignal(1, 0, 0, 0, job.comm(0), nullptr), ncclSuccess);
  EXPECT_EQ(wait_for(job.comm(1), from(0, 2)), ncclSuccess);
  EXPECT_EQ(windows.memory(1)[1], 77);
}

TEST_P(OneSided, SignalsAreNeverLostAndAreConsumedInOrder) {
  Job job(2);
  Windows windows(job, 8);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(ncclSignal(1, 0, 0, 0, job.comm(0), nullptr), ncclSuccess);
  }
  EXPECT_EQ(wait_for(job.comm(1), from(0, 3)), ncclSuccess);
  EXPECT_EQ(wait_for(job.comm(1), from(0, 7)), ncclSuccess);
  ASSERT_EQ(ncclSignal(0, 0, 0, 0, job.comm(0), nullptr), ncclSuccess) << "to oneself";
  EXPECT_EQ(wait_for(job.comm(0), from(0)), ncclSuccess);
}

TEST_P(OneSided, AWaitForSeveralRanksAndContextsEndsWithTheLast) {
  Job job(3);
  Windows windows(job, 8);
  std::array<ncclWaitSignalDesc_t, 3> all{from(0, 2, 0, 1), from(1, 1, 0, 2), from(2)};
  expect_all(job.run_in_threads([&](int rank, ncclComm_t comm) {
    switch (rank) {
      case 0: {
        const ncclResult_t first = ncclSignal(2, 0, 1, 0, comm, nullptr);
        return first != ncclSuccess ? first : ncclSignal(2, 0, 1, 0, comm, nullptr);
      }
      case 1:
        return ncclSignal(2, 0, 2, 0, comm, nullptr);
      default: {
        const ncclResult_t own = ncclSignal(2, 0, 0, 0, comm, nullptr);
        return own != ncclSuccess ? own : ncclWaitSignal(3, all.data(), comm, nullptr);
      }
    }
  }),
             ncclSuccess);
}

TEST_P(OneSided, AGroupOfOneThreadRunsAllRanksPutsAndWaits) {
  Job job(4);
  Windows windows(job, 4);
  std::vector<int32_t> sums(4);
  job.run_in_group([&](int rank, ncclComm_t comm) {
    windows.memory(rank)[0] = 10 + rank;
    const ncclResult_t put = ncclPutSignal(windows.memory(rank), 1, ncclInt32, (rank + 1) % 4,
                                           windows.window(rank), 4, 0, 0, 0, comm, nullptr);
    const ncclResult_t waited = wait_for(comm, from((rank + 3) % 4));
    const ncclResult_t reduced =
        ncclAllReduce(windows.memory(rank), &sums[static_cast<size_t>(rank)], 1, ncclInt32, ncclSum,
                      comm, nullptr);
    return put != ncclSuccess ? put : waited != ncclSuccess ? waited : reduced;
  });
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(windows.memory(rank)[1], 10 + (rank + 3) % 4);
    EXPECT_EQ(sums[static_cast<size_t>(rank)], 10 + 11 + 12 + 13);
  }
}

TEST_P(OneSided, StreamsKeepTheOrderOfCalls) {
  Job job(2);
  Windows windows(job, 1024);
  std::array<cudaStream_t, 2> streams{};
  for (cudaStream_t& stream : streams) {
    ASSERT_EQ(plexusStreamCreate(&stream), ncclSuccess);
  }
  int32_t sum = 0;
  ASSERT_EQ(wait_for(job.comm(1), from(0, 2), streams[1]), ncclSuccess) << "returns at once";
  EXPECT_EQ(plexusStreamQuery(streams[1]), ncclInProgress);
  for (int32_t i = 0; i < 2; ++i) {
    windows.memory(0)[i] = 40 + i;
    ASSERT_EQ(ncclPutSignal(windows.memory(0) + i, 1, ncclInt32, 1, windows.window(0),
                            static_cast<size_t>(i) * 4, 0, 0, 0, job.comm(0), streams[0]),
              ncclSuccess);
  }
  const auto add = [](void* user) {
    auto* const both = static_cast<std::pair<int32_t*, int32_t*>*>(user);
    *both->second = both->first[0] + both->first[1];
  };
  std::pair<int32_t*, int32_t*> places{windows.memory(1), &sum};
  ASSERT_EQ(plexusLaunchHostFunc(streams[1], add, &places), ncclSuccess);
  EXPECT_EQ(plexusStreamSynchronize(streams[1]), ncclSuccess);
  EXPECT_EQ(sum, 81);
  for (const cudaStream_t stream : streams) {
    EXPECT_EQ(plexusStreamDestroy(stream), ncclSuccess);
  }
}

TEST_P(OneSided, APutBeyondThePeersWindowIsRefusedAndNothingElseIsLost) {
  Job job(2);
  Windows windows(job, 1024);
  const auto put = [&](size_t count, size_t offset) {
    return ncclPutSignal(windows.memory(0), count, ncclInt32, 1, windows.window(0), offset, 0, 0, 0,
                         job.comm(0), nullptr);
  };
  EXPECT_EQ(put(1024, 4), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr),
              HasSubstr("a put of 4096 bytes at 4 of the window of rank 1 ends beyond its 4096"));
  EXPECT_EQ(put(1, static_cast<size_t>(-4)), ncclInvalidArgument);
  windows.memory(0)[0] = 5;
  EXPECT_EQ(put(1, 4092), ncclSuccess);
  EXPECT_EQ(wait_for(job.comm(1), from(0)), ncclSuccess) << "the first two raised nothing";
  EXPECT_EQ(windows.memory(1)[1023], 5);
  EXPECT_EQ(put(0, 4096), ncclSuccess) << "a put of nothing is a signal";
  EXPECT_EQ(wait_for(job.comm(1), from(0)), ncclSuccess);
}

TEST_P(OneSided, AWaitEndsWhenTheRankItWaitsForAborts) {
  std::array<ncclComm_t, 2> comms{};
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess);
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 4096), ncclSuccess);
  ncclWindow_t window = nullptr;
  ASSERT_EQ(ncclCommWindowRegister(comms[1], memory, 4096, &window, 0), ncclSuccess);
  ncclResult_t waited = ncclSuccess;
  std::thread waiter([&] { waited = wait_for(comms[1], from(0)); });
  EXPECT_EQ(ncclCommAbort(comms[0]), ncclSuccess);
  waiter.join();
  EXPECT_EQ(waited, ncclRemoteError);
  EXPECT_EQ(ncclCommAbort(comms[1]), ncclSuccess);
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
}

TEST_P(OneSided, WhatWasRaisedBeforeARankLeftIsThere) {
  std::array<ncclComm_t, 2> comms{};
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess);
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 4096), ncclSuccess);
  std::array<ncclWindow_t, 2> windows{};
  for (size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(ncclCommWindowRegister(comms[rank], memory, 4096, &windows[rank], 0), ncclSuccess);
  }
  ASSERT_EQ(ncclSignal(1, 0, 0, 0, comms[0], nullptr), ncclSuccess);
  ASSERT_EQ(ncclCommDestroy(comms[0]), ncclSuccess);
  EXPECT_EQ(wait_for(comms[1], from(0)), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comms[1]), ncclSuccess);
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
}

INSTANTIATE_TEST_SUITE_P(Ranks,
                         OneSided,
                         testing::Values("Memory", "Messages"),
                         [](const auto& each) { return std::string(each.param); });

class OneSidedArguments : public testing::Test {
 protected:
  static void refused(ncclResult_t result,
                      const char* what,
                      ncclResult_t code = ncclInvalidArgument) {
    EXPECT_EQ(result, code) << what;
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr(what));
  }
};

TEST_F(OneSidedArguments, AreChecked) {
  Job job(2);
  const ncclComm_t comm = job.comm(0);
  refused(ncclSignal(1, 0, 0, 0, comm, nullptr), "once a window is registered", ncclInvalidUsage);
  refused(wait_for(comm, from(1)), "once a window is registered", ncclInvalidUsage);
  Windows windows(job, 1024);
  Windows plain(job, 1024, NCCL_WIN_DEFAULT);
  int32_t* const memory = windows.memory(0);
  const ncclWindow_t window = windows.window(0);
  const auto put = [&](const void* data, size_t count, int peer, ncclWindow_t to, int signal = 0,
                       int context = 0, unsigned flags = 0, int type = ncclInt32) {
    return ncclPutSignal(data, count, static_cast<ncclDataType_t>(type), peer, to, 0, signal,
                         context, flags, comm, nullptr);
  };
  refused(put(memory, 1, 2, window), "peer 2 is not a rank");
  refused(put(memory, 1, -1, window), "peer -1 is not a rank");
  refused(put(memory, 1, 1, nullptr), "peerWin is NULL");
  refused(put(memory, 1, 1, windows.window(1)), "is not a window of this communicator");
  refused(put(nullptr, 1, 1, window), "localbuff is NULL");
  refused(put(plain.memory(0), 1, 1, window), "is not inside a window");
  refused(put(memory + 1, 1024, 1, window), "is not inside a window");
  refused(put(memory, static_cast<size_t>(-1), 1, window), "exceeds the address space");
  refused(put(memory, 1, 1, window, 1), "sigIdx is 1");
  refused(put(memory, 1, 1, window, -1), "sigIdx is -1");
  refused(put(memory, 1, 1, window, 0, 1), "ctx is 1");
  refused(put(memory, 1, 1, window, 0, 0, 1), "flags is 0x1");
  refused(put(memory, 1, 1, window, 0, 0, 0, 99), "datatype 99");
  refused(ncclSignal(1, 0, 7, 0, comm, nullptr), "ctx is 7");
  refused(ncclSignal(9, 0, 0, 0, comm, nullptr), "peer 9");
  refused(ncclSignal(1, 0, 0, 8, comm, nullptr), "flags is 0x8");
  refused(ncclWaitSignal(1, nullptr, comm, nullptr), "signalDescs is NULL");
  ncclWaitSignalDesc_t one = from(1);
  refused(ncclWaitSignal(0, &one, comm, nullptr), "nDesc is 0");
  refused(wait_for(comm, from(1, 0)), "signalDescs[0].opCnt is 0");
  refused(wait_for(comm, from(2)), "peer 2");
  refused(wait_for(comm, from(1, 1, 3)), "sigIdx is 3");
  refused(ncclSignal(1, 0, 0, 0, nullptr, nullptr), "is not a communicator");
  refused(ncclSignal(1, 0, 0, 0, comm, reinterpret_cast<cudaStream_t>(memory)), "stream");
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  refused(put(memory, 1, 2, window), "peer 2 is not a rank");
  EXPECT_EQ(ncclSignal(1, 0, 0, 0, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument) << "the group has failed, and raises nothing";
  EXPECT_EQ(put(memory, 1, 1, window), ncclSuccess);
  EXPECT_EQ(wait_for(job.comm(1), from(0)), ncclSuccess);
}

TEST_F(OneSidedArguments, ContextsAndSignalsAreThoseOfTheConfig) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.numRmaCtx = 2;
  config.numRmaSig = 4;
  config.rmaEagerInit = 1;
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclSuccess);
  EXPECT_EQ(ncclSignal(0, 3, 1, 0, comm, nullptr), ncclSuccess) << "before any window";
  EXPECT_EQ(wait_for(comm, from(0, 1, 3, 1)), ncclSuccess);
  refused(ncclSignal(0, 4, 0, 0, comm, nullptr), "sigIdx is 4");
  refused(ncclSignal(0, 0, 2, 0, comm, nullptr), "ctx is 2");
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  config.numRmaCtx = 0;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclSuccess);
  refused(ncclSignal(0, 0, 0, 0, comm, nullptr), "numRmaCtx 0");
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  config.numRmaCtx = 1025;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
}

}  // namespace
}  // namespace plexus::testing_job
