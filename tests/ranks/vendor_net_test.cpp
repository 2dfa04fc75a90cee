// SPDX-License-Identifier: Apache-2.0
// Every collective over a library of NCCL's net ABI that behaves like a real vendor's, while other
// communicators of the same ranks are made and destroyed. NCCL_NET_PLUGIN selects the library;
// ctest sets it.
#include <cstring>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

using testing_job::Job;
using testing_job::value_of;

constexpr int kRanks = 3;
/// One message, and more than a connection has slots.
constexpr uint64_t kCounts[] = {0, 1, 50'003};

struct Buffers {
  explicit Buffers(int rank, uint64_t count) : send(count * kRanks), recv(count * kRanks) {
    for (uint64_t i = 0; i < send.size(); ++i) {
      send[i] = static_cast<int32_t>(value_of(rank, i));
    }
  }
  std::vector<int32_t> send;
  std::vector<int32_t> recv;
};

struct Call {
  const char* name;
  ncclResult_t (*run)(int rank, ncclComm_t comm, Buffers& data, uint64_t count);
};

ncclResult_t run_ring_of_messages(int rank, ncclComm_t comm, Buffers& data, uint64_t count) {
  ncclResult_t results[] = {
      ncclGroupStart(),
      ncclSend(data.send.data(), count, ncclInt32, (rank + 1) % kRanks, comm, nullptr),
      ncclRecv(data.recv.data(), count, ncclInt32, (rank + kRanks - 1) % kRanks, comm, nullptr),
      ncclGroupEnd()};
  for (const ncclResult_t result : results) {
    if (result != ncclSuccess) {
      return result;
    }
  }
  return ncclSuccess;
}

const Call kCalls[] = {
    {"all_reduce",
     [](int, ncclComm_t comm, Buffers& data, uint64_t count) {
       return ncclAllReduce(data.send.data(), data.recv.data(), count, ncclInt32, ncclSum, comm,
                            nullptr);
     }},
    {"broadcast",
     [](int, ncclComm_t comm, Buffers& data, uint64_t count) {
       return ncclBroadcast(data.send.data(), data.recv.data(), count, ncclInt32, 1, comm, nullptr);
     }},
    {"reduce",
     [](int, ncclComm_t comm, Buffers& data, uint64_t count) {
       return ncclReduce(data.send.data(), data.recv.data(), count, ncclInt32, ncclMax, 2, comm,
                         nullptr);
     }},
    {"all_gather",
     [](int, ncclComm_t comm, Buffers& data, uint64_t count) {
       return ncclAllGather(data.send.data(), data.recv.data(), count, ncclInt32, comm, nullptr);
     }},
    {"reduce_scatter",
     [](int, ncclComm_t comm, Buffers& data, uint64_t count) {
       return ncclReduceScatter(data.send.data(), data.recv.data(), count, ncclInt32, ncclSum, comm,
                                nullptr);
     }},
    {"all_to_all",
     [](int, ncclComm_t comm, Buffers& data, uint64_t count) {
       return ncclAlltoAll(data.send.data(), data.recv.data(), count, ncclInt32, comm, nullptr);
     }},
    {"gather",
     [](int, ncclComm_t comm, Buffers& data, uint64_t count) {
       return ncclGather(data.send.data(), data.recv.data(), count, ncclInt32, 0, comm, nullptr);
     }},
    {"scatter",
     [](int, ncclComm_t comm, Buffers& data, uint64_t count) {
       return ncclScatter(data.send.data(), data.recv.data(), count, ncclInt32, 0, comm, nullptr);
     }},
    {"messages", run_ring_of_messages},
};

/// Messages left over from earlier calls would show in this one.
void expect_sum(int rank, ncclComm_t comm) {
  Buffers data(rank, 1000);
  ASSERT_EQ(
      ncclAllReduce(data.send.data(), data.recv.data(), 1000, ncclInt32, ncclSum, comm, nullptr),
      ncclSuccess)
      << ncclGetLastError(nullptr);
  for (uint64_t i = 0; i < 1000; ++i) {
    int64_t sum = 0;
    for (int each = 0; each < kRanks; ++each) {
      sum += value_of(each, i);
    }
    ASSERT_EQ(data.recv[i], sum) << i;
  }
}

TEST(VendorNet, ServesCallsWhileOtherCommunicatorsOfTheRanksComeAndGo) {
  Job job(kRanks);
  for (const Call& call : kCalls) {
    for (const uint64_t count : kCounts) {
      SCOPED_TRACE(testing::Message() << call.name << " of " << count);
      job.run_in_threads([&](int rank, ncclComm_t comm) {
        Buffers data(rank, count);
        ncclComm_t child = nullptr;
        EXPECT_EQ(ncclCommSplit(comm, 0, rank, &child, nullptr), ncclSuccess)
            << ncclGetLastError(nullptr);
        EXPECT_EQ(call.run(rank, child, data, count), ncclSuccess) << ncclGetLastError(nullptr);
        EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
        expect_sum(rank, comm);
        return ncclSuccess;
      });
      if (testing::Test::HasFailure()) {
        return;
      }
    }
  }
}

TEST(VendorNet, ServesRanksThatOneThreadDrives) {
  Job job(kRanks);
  std::vector<Buffers> data;
  for (int rank = 0; rank < kRanks; ++rank) {
    data.emplace_back(rank, 100'000);
  }
  for (int turn = 0; turn < 3; ++turn) {
    job.run_in_group([&](int rank, ncclComm_t comm) {
      Buffers& mine = data[static_cast<size_t>(rank)];
      return ncclAllReduce(mine.send.data(), mine.recv.data(), 100'000, ncclInt32, ncclSum, comm,
                           nullptr);
    });
  }
  for (uint64_t i = 0; i < 100'000; ++i) {
    ASSERT_EQ(data[0].recv[i], value_of(0, i) + value_of(1, i) + value_of(2, i));
  }
}

}  // namespace
}  // namespace plexus
