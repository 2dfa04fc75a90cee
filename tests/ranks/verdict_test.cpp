// SPDX-License-Identifier: Apache-2.0
// Ranks that wait for longer than PLEXUS_STALL_S say who keeps them waiting, and go on when it
// comes.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;
using testing_job::Job;

class VerdictTest : public testing::Test {
 protected:
  VerdictTest() : file_(testing::TempDir() + "verdict_" + std::to_string(getpid())) {
    std::filesystem::remove(file_);
    setenv("PLEXUS_STALL_S", "1", 1);
    setenv("PLEXUS_STALL_FILE", file_.c_str(), 1);
  }
  ~VerdictTest() override {
    unsetenv("PLEXUS_STALL_S");
    unsetenv("PLEXUS_STALL_FILE");
    std::filesystem::remove(file_);
  }

  /// The first verdict; waits for it.
  [[nodiscard]] std::string verdict() const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    std::string line;
    while (line.empty() && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::ifstream in(file_);
      std::getline(in, line);
      line = in.eof() ? "" : line;  // not all of it is there yet
    }
    return line;
  }

  /// All ranks but `late` make `call`; `late` does after the verdict, which this returns.
  std::string be_late(int nranks,
                      int late,
                      const std::function<ncclResult_t(int, ncclComm_t)>& call) {
    Job job(nranks);
    std::string found;
    const auto results = job.run_in_threads([&](int rank, ncclComm_t comm) {
      if (rank == late) {
        found = verdict();
      }
      return call(rank, comm);
    });
    EXPECT_EQ(results, std::vector<ncclResult_t>(static_cast<size_t>(nranks), ncclSuccess))
        << ncclGetLastError(nullptr);
    return found;
  }

  const std::string file_;
};

ncclResult_t all_reduce(ncclComm_t comm) {
  float value = 1;
  return ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, nullptr);
}

TEST_F(VerdictTest, NamesTheRankThatIsLate) {
  const auto found = be_late(4, 2, [](int /*rank*/, ncclComm_t comm) { return all_reduce(comm); });
  EXPECT_THAT(found, HasSubstr("\"cause\":\"not_called\""));
  EXPECT_THAT(found, HasSubstr("\"ranks\":[2]"));
  EXPECT_THAT(found, HasSubstr("in all_reduce(count 1, float, sum"));
  EXPECT_THAT(found, HasSubstr("rank 2 has not made that call"));
  EXPECT_THAT(found, HasSubstr("it has made no call yet"));
}

TEST_F(VerdictTest, KnowsTheLastCallOfTheLateRank) {
  Job job(3);
  std::string found;
  const auto results = job.run_in_threads([&](int rank, ncclComm_t comm) {
    int value = 1;
    const auto first = ncclBroadcast(&value, &value, 1, ncclInt, 1, comm, nullptr);
    if (rank == 1) {
      found = verdict();
    }
    return first == ncclSuccess ? all_reduce(comm) : first;
  });
  EXPECT_EQ(results, std::vector<ncclResult_t>(3, ncclSuccess));
  EXPECT_THAT(found, HasSubstr("\"ranks\":[1]"));
  EXPECT_THAT(found, HasSubstr("its last call was broadcast(count 1, int32, root 1"));
}

TEST_F(VerdictTest, OfMessagesNamesTheRankThatIsAwaited) {
  // Rank 3 has no part in the messages and is as idle as rank 2.
  const auto found = be_late(4, 2, [](int rank, ncclComm_t comm) {
    float value = 1;
    switch (rank) {
      case 0:
        return ncclRecv(&value, 1, ncclFloat, 1, comm, nullptr);
      case 1: {
        const auto received = ncclRecv(&value, 1, ncclFloat, 2, comm, nullptr);
        return received == ncclSuccess ? ncclSend(&value, 1, ncclFloat, 0, comm, nullptr)
                                       : received;
      }
      case 2:
        return ncclSend(&value, 1, ncclFloat, 1, comm, nullptr);
      default:
        return ncclSuccess;
    }
  });
  EXPECT_THAT(found, HasSubstr("\"cause\":\"not_called\""));
  EXPECT_THAT(found, HasSubstr("\"ranks\":[2]"));
}

TEST_F(VerdictTest, OfASplitNamesTheRankThatHasNotCalledIt) {
  const auto found = be_late(3, 1, [](int /*rank*/, ncclComm_t comm) {
    ncclComm_t child = nullptr;
    const auto split = ncclCommSplit(comm, 0, 0, &child, nullptr);
    return split == ncclSuccess ? ncclCommDestroy(child) : split;
  });
  EXPECT_THAT(found, HasSubstr("in ncclCommSplit"));
  EXPECT_THAT(found, HasSubstr("\"ranks\":[1]"));
}

TEST_F(VerdictTest, NamesTheOtherCommunicatorInWhichARankWaits) {
  Job other(2);
  Job job(3);
  std::string found;
  const auto results = job.run_in_threads([&](int rank, ncclComm_t comm) {
    // Rank 1 calls in both communicators, so that it is known that one thread does.
    ncclResult_t result = all_reduce(comm);
    if (result == ncclSuccess && rank != 0) {
      result = all_reduce(other.comm(rank - 1));
    }
    if (rank == 2) {
      found = verdict();
    }
    if (result == ncclSuccess && rank != 0) {
      result = all_reduce(other.comm(rank - 1));
    }
    return result == ncclSuccess ? all_reduce(comm) : result;
  });
  EXPECT_EQ(results, std::vector<ncclResult_t>(3, ncclSuccess));
  // Either communicator may be the first to ask.
  EXPECT_THAT(found, testing::AnyOf(HasSubstr("\"cause\":\"elsewhere\",\"classes\""),
                                    HasSubstr("\"nranks\":2")));
}

TEST_F(VerdictTest, SaysNothingWhenSwitchedOff) {
  setenv("PLEXUS_STALL_S", "0", 1);
  Job job(2);
  const auto results = job.run_in_threads([&](int rank, ncclComm_t comm) {
    if (rank == 1) {
      // A verdict would be there by then: the engine reports a stall after a second.
      std::this_thread::sleep_for(std::chrono::seconds(3));
    }
    return all_reduce(comm);
  });
  EXPECT_EQ(results, std::vector<ncclResult_t>(2, ncclSuccess));
  EXPECT_FALSE(std::filesystem::exists(file_));
}

}  // namespace
}  // namespace plexus
