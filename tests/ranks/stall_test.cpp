// SPDX-License-Identifier: Apache-2.0
// Calls that can never end are reported on every rank, over every transport; calls that are only
// late are not.
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;
using testing_job::Job;

constexpr size_t kLarge = size_t{1} << 18;

/// The transport between the ranks of the process.
enum class Transport { kDirect, kShm, kNet };

class StallTest : public testing::TestWithParam<Transport> {
 protected:
  StallTest() {
    if (GetParam() != Transport::kDirect) {
      setenv("NCCL_P2P_DISABLE", "1", 1);
    }
    if (GetParam() == Transport::kNet) {
      setenv("NCCL_SHM_DISABLE", "1", 1);
      setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    }
  }
  ~StallTest() override {
    for (const char* const name : {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_SOCKET_IFNAME"}) {
      unsetenv(name);
    }
  }

  /// The body of a rank, with its own buffers of kLarge elements.
  struct Rank {
    int rank;
    ncclComm_t comm;
    float* in;
    float* out;
    [[nodiscard]] ncclResult_t all_reduce(size_t count = 1) const {
      return ncclAllReduce(in, out, count, ncclFloat, ncclSum, comm, nullptr);
    }
    [[nodiscard]] ncclResult_t broadcast(int root, size_t count = 1) const {
      return ncclBroadcast(in, out, count, ncclFloat, root, comm, nullptr);
    }
    [[nodiscard]] ncclResult_t send(int peer, size_t count = kLarge) const {
      return ncclSend(in, count, ncclFloat, peer, comm, nullptr);
    }
    [[nodiscard]] ncclResult_t recv(int peer, size_t count = kLarge) const {
      return ncclRecv(out, count, ncclFloat, peer, comm, nullptr);
    }
  };
  using Body = std::function<ncclResult_t(const Rank&)>;

  /// All ranks fail with ncclInvalidUsage; returns the error text.
  static std::string run_wrong(int nranks, const Body& body) {
    Job job(nranks);
    EXPECT_EQ(run(job, body),
              std::vector<ncclResult_t>(static_cast<size_t>(nranks), ncclInvalidUsage));
    return ncclGetLastError(nullptr);
  }
  static void run_right(int nranks, const Body& body) {
    Job job(nranks);
    EXPECT_EQ(run(job, body), std::vector<ncclResult_t>(static_cast<size_t>(nranks), ncclSuccess))
        << ncclGetLastError(nullptr);
  }

 private:
  static std::vector<ncclResult_t> run(Job& job, const Body& body) {
    return job.run_in_threads([&](int rank, ncclComm_t comm) {
      std::vector<float> in(kLarge, 1);
      std::vector<float> out(kLarge);
      return body({.rank = rank, .comm = comm, .in = in.data(), .out = out.data()});
    });
  }
};

/// A rank that arrives after the others have been reported as stalled.
void be_late() { std::this_thread::sleep_for(std::chrono::milliseconds(2500)); }

ncclResult_t first_error(std::initializer_list<ncclResult_t> results) {
  for (const ncclResult_t result : results) {
    if (result != ncclSuccess) {
      return result;
    }
  }
  return ncclSuccess;
}

TEST_P(StallTest, TwoThatSendToEachOther) {
  const auto text = run_wrong(2, [](const Rank& rank) {
    return first_error({rank.send(1 - rank.rank), rank.recv(1 - rank.rank)});
  });
  EXPECT_THAT(text, HasSubstr("rank 0 waits in send("));
  EXPECT_THAT(text, HasSubstr("rank 1 waits in send("));
  EXPECT_THAT(text, HasSubstr("ncclGroupStart"));
}

TEST_P(StallTest, ThreeThatReceiveFromTheNext) {
  const auto text = run_wrong(3, [](const Rank& rank) {
    return first_error({rank.recv((rank.rank + 1) % 3, 4), rank.send((rank.rank + 2) % 3, 4)});
  });
  for (const char* const part :
       {"rank 0 waits in recv(", "rank 1 waits in recv(", "rank 2 waits in recv("}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

/// The calls of `issue` on a stream: their first error.
template <class Issue>
ncclResult_t run_on_stream(const Issue& issue) {
  cudaStream_t stream = nullptr;
  if (const ncclResult_t made = plexusStreamCreate(&stream); made != ncclSuccess) {
    return made;
  }
  const ncclResult_t issued = issue(stream);
  const ncclResult_t ended = plexusStreamSynchronize(stream);
  static_cast<void>(plexusStreamDestroy(stream));
  return first_error({issued, ended});
}

TEST_P(StallTest, ReceivesAheadOfSendsOnStreams) {
  const auto text = run_wrong(3, [](const Rank& rank) {
    return run_on_stream([&](cudaStream_t stream) {
      return first_error({ncclRecv(rank.out, 4, ncclFloat, (rank.rank + 1) % 3, rank.comm, stream),
                          ncclSend(rank.in, 4, ncclFloat, (rank.rank + 2) % 3, rank.comm, stream)});
    });
  });
  for (const char* const part :
       {"rank 0 waits in recv(", "rank 1 waits in recv(", "rank 2 waits in recv("}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST_P(StallTest, ReceiveAheadOfAllReduceOnStreams) {
  const auto text = run_wrong(2, [](const Rank& rank) {
    return run_on_stream([&](cudaStream_t stream) {
      const auto all_reduce = [&] {
        return ncclAllReduce(rank.in, rank.out, 1, ncclFloat, ncclSum, rank.comm, stream);
      };
      return rank.rank == 0 ? first_error({ncclRecv(rank.out, 4, ncclFloat, 1, rank.comm, stream),
                                           all_reduce()})
                            : first_error({all_reduce(),
                                           ncclSend(rank.in, 4, ncclFloat, 0, rank.comm, stream)});
    });
  });
  EXPECT_THAT(text, HasSubstr("rank 0 waits in recv("));
  EXPECT_THAT(text, HasSubstr("rank 1 waits in all_reduce("));
}

TEST_P(StallTest, ALateRankOfManyCallsOnAStreamIsRight) {
  run_right(2, [](const Rank& rank) {
    if (rank.rank == 1) {
      be_late();
    }
    return run_on_stream([&](cudaStream_t stream) {
      for (int i = 0; i < 20; ++i) {
        const ncclResult_t result = first_error(
            {ncclGroupStart(), ncclRecv(rank.out, 4, ncclFloat, 1 - rank.rank, rank.comm, stream),
             ncclSend(rank.in, 4, ncclFloat, 1 - rank.rank, rank.comm, stream), ncclGroupEnd(),
             ncclAllReduce(rank.in, rank.out, 1, ncclFloat, ncclSum, rank.comm, stream)});
        if (result != ncclSuccess) {
          return result;
        }
      }
      return ncclSuccess;
    });
  });
}

TEST_P(StallTest, ReceiveAgainstAllReduce) {
  const auto text = run_wrong(
      3, [](const Rank& rank) { return rank.rank == 2 ? rank.recv(0, 4) : rank.all_reduce(); });
  EXPECT_THAT(text, HasSubstr("recv("));
  EXPECT_THAT(text, HasSubstr("all_reduce("));
}

TEST_P(StallTest, LargeSendAgainstAllReduce) {
  const auto text = run_wrong(
      2, [](const Rank& rank) { return rank.rank == 0 ? rank.send(1) : rank.all_reduce(kLarge); });
  EXPECT_THAT(text, HasSubstr("send("));
  EXPECT_THAT(text, HasSubstr("all_reduce("));
}

TEST_P(StallTest, OtherOrderOfLargeCalls) {
  const auto text = run_wrong(3, [](const Rank& rank) {
    const ncclResult_t first = rank.all_reduce(kLarge);
    return rank.rank == 2
               ? first_error({first, rank.broadcast(0, kLarge), rank.all_reduce(kLarge)})
               : first_error({first, rank.all_reduce(kLarge), rank.broadcast(0, kLarge)});
  });
  EXPECT_THAT(text, HasSubstr("broadcast("));
  EXPECT_THAT(text, HasSubstr("all_reduce("));
}

TEST_P(StallTest, SplitAgainstACollective) {
  const auto text = run_wrong(3, [](const Rank& rank) {
    if (rank.rank != 1) {
      return rank.all_reduce();
    }
    ncclComm_t child = nullptr;
    return ncclCommSplit(rank.comm, 0, 0, &child, nullptr);
  });
  EXPECT_THAT(text, HasSubstr("rank 1 waits in ncclCommSplit"));
  EXPECT_THAT(text, HasSubstr("all_reduce("));
}

TEST_P(StallTest, OneCallMoreThanARankThatHasDestroyed) {
  std::array<ncclComm_t, 2> comms{};
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess);
  std::array<ncclResult_t, 2> results{};
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      float value = 1;
      const auto call = [&] {
        return ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comms[rank], nullptr);
      };
      results[rank] = call();
      if (rank == 0 && results[rank] == ncclSuccess) {
        results[rank] = call();
      }
      if (rank == 0) {
        EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("rank 1"));
      }
      EXPECT_EQ(ncclCommDestroy(comms[rank]), ncclSuccess);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_NE(results[0], ncclSuccess);
  EXPECT_EQ(results[1], ncclSuccess);
}

TEST_P(StallTest, TwoCommunicatorsInSwappedOrder) {
  Job one(2);
  Job other(2);
  const auto results = one.run_in_threads([&](int rank, ncclComm_t comm) {
    float value = 1;
    const auto call = [&](ncclComm_t used) {
      return ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, used, nullptr);
    };
    const ncclResult_t before = first_error({call(comm), call(other.comm(rank))});
    return rank == 0 ? first_error({before, call(comm), call(other.comm(rank))})
                     : first_error({before, call(other.comm(rank)), call(comm)});
  });
  EXPECT_EQ(results, std::vector<ncclResult_t>(2, ncclInvalidUsage));
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("in the same order"));
}

TEST_P(StallTest, ALatePipelineIsRight) {
  run_right(3, [](const Rank& rank) {
    if (rank.rank == 0) {
      be_late();
      return rank.send(1, 6);
    }
    return rank.rank == 1 ? first_error({rank.recv(0, 6), rank.send(2, 9)}) : rank.recv(1, 9);
  });
}

TEST_P(StallTest, MessagesOfOtherSizesToALateRankAreRight) {
  run_right(3, [](const Rank& rank) {
    if (rank.rank == 2) {
      be_late();
      return first_error({rank.send(0, 6), rank.recv(1)});
    }
    return rank.rank == 0 ? rank.recv(2, 6) : rank.send(2);
  });
}

TEST_P(StallTest, CollectivesBesideMessagesOfALateRankAreRight) {
  run_right(3, [](const Rank& rank) {
    if (rank.rank == 2) {
      be_late();
      return first_error({rank.all_reduce(), rank.broadcast(0), rank.recv(0), rank.send(1, 4)});
    }
    const ncclResult_t both = first_error({rank.all_reduce(), rank.broadcast(0)});
    return first_error({both, rank.rank == 0 ? rank.send(2) : rank.recv(2, 4)});
  });
}

TEST_P(StallTest, AGroupAgainstTheSameCallsOneByOneIsRight) {
  run_right(2, [](const Rank& rank) {
    if (rank.rank == 1) {
      return first_error({rank.all_reduce(kLarge), rank.recv(0), rank.send(0, 4)});
    }
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    std::vector<float> received(4);
    const ncclResult_t issued =
        first_error({rank.send(1), rank.all_reduce(kLarge),
                     ncclRecv(received.data(), 4, ncclFloat, 1, rank.comm, nullptr)});
    return first_error({issued, ncclGroupEnd()});
  });
}

std::string name_of(const testing::TestParamInfo<Transport>& info) {
  constexpr std::array kNames = {"Direct", "Shm", "Net"};
  return kNames[static_cast<size_t>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Transports,
                         StallTest,
                         testing::Values(Transport::kDirect, Transport::kShm, Transport::kNet),
                         name_of);

}  // namespace
}  // namespace plexus
