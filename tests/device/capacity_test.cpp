// SPDX-License-Identifier: Apache-2.0
// Groups that need more blocks than the device holds at once: the software device is given few
// blocks.
#include <numeric>

#include "tests/device/job.hpp"
#include "tests/support/software_device.hpp"

namespace plexus::testing_device {
namespace {

class DeviceCapacity : public testing::Test {
 protected:
  void SetUp() override {
    if (!machine().is_software()) {
      GTEST_SKIP() << "it makes the software device hold few blocks";
    }
  }
  void TearDown() override {
    if (machine().is_software()) {
      set_blocks(SoftwareDevice::Options{}.blocks_max);
    }
  }
  /// Sets the blocks of every device, until the end of the test.
  static void set_blocks(int blocks) { software_devices().set_blocks_max(blocks); }
  /// Blocks of the test's largest launch.
  static uint32_t blocks_most() { return software_devices().blocks_most(); }
};

/// The message from rank `from` to rank `to`, with an individual length.
std::vector<int32_t> message(int from, int to) {
  std::vector<int32_t> values(static_cast<size_t>(1 + (from * 7 + to * 13) % 40) * 25);
  std::iota(values.begin(), values.end(), from * 1000 + to);
  return values;
}

/// The buffers of all ranks, and their calls.
class AllToAll {
 public:
  explicit AllToAll(const Job& job) : nranks_(job.nranks()) {
    for (int rank = 0; rank < nranks_; ++rank) {
      for (int peer = 0; peer < nranks_; ++peer) {
        sent_.emplace_back(job.device(rank), message(rank, peer));
        received_.emplace_back(job.device(rank), message(peer, rank).size());
      }
    }
  }
  ncclResult_t call(int rank, ncclComm_t comm, DeviceStream stream) const {
    for (int peer = 0; peer < nranks_; ++peer) {
      const ncclResult_t sent = ncclSend(sent_[place(rank, peer)].data(),
                                         message(rank, peer).size(), ncclInt32, peer, comm, stream);
      if (sent != ncclSuccess) {
        return sent;
      }
      const ncclResult_t received =
          ncclRecv(received_[place(rank, peer)].data(), message(peer, rank).size(), ncclInt32, peer,
                   comm, stream);
      if (received != ncclSuccess) {
        return received;
      }
    }
    return ncclSuccess;
  }
  void expect_all() const {
    for (int rank = 0; rank < nranks_; ++rank) {
      for (int peer = 0; peer < nranks_; ++peer) {
        ASSERT_EQ(received_[place(rank, peer)].values(), message(peer, rank))
            << rank << " of " << peer;
      }
    }
  }

 private:
  [[nodiscard]] size_t place(int rank, int peer) const {
    return static_cast<size_t>(rank) * static_cast<size_t>(nranks_) + static_cast<size_t>(peer);
  }
  int nranks_;
  std::vector<Buffer<int32_t>> sent_;      // by rank and peer
  std::vector<Buffer<int32_t>> received_;  // likewise
};

TEST_F(DeviceCapacity, ADeviceThatRunsNoKernelFailsInitAlsoWithAuto) {
  set_blocks(0);
  for (const char* const setting : {"auto", "cuda"}) {
    setenv("PLEXUS_DEVICE", setting, 1);
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclInvalidUsage) << setting;
    EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("no code for cuda:0"));
    EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("PLEXUS_DEVICE=host"));
  }
  setenv("PLEXUS_DEVICE", "cuda", 1);
}

TEST_F(DeviceCapacity, SixtyFourRanksSendToAllOnAFewBlocks) {
  set_blocks(6);
  Job job(std::vector<int>(64, 0));
  const AllToAll all(job);
  job.run_in_group(
      [&](int rank, ncclComm_t comm, DeviceStream stream) { return all.call(rank, comm, stream); });
  job.synchronize();
  all.expect_all();
  EXPECT_EQ(blocks_most(), 6U);
}

TEST_F(DeviceCapacity, OneBlockServesAllMessagesOfManySlots) {
  set_blocks(1);
  Job job({0, 0, 0});
  constexpr size_t kCount = 1'500'000;  // more than the slots of a connection hold
  std::vector<Buffer<int32_t>> in;
  std::vector<Buffer<int32_t>> out;
  for (int rank = 0; rank < 3; ++rank) {
    in.emplace_back(0, std::vector<int32_t>(kCount, rank));
    out.emplace_back(0, kCount);
  }
  for (int repeat = 0; repeat < 2; ++repeat) {
    job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
      const auto r = static_cast<size_t>(rank);
      // All ranks send before they receive.
      EXPECT_EQ(ncclSend(in[r].data(), kCount, ncclInt32, (rank + 1) % 3, comm, stream),
                ncclSuccess);
      return ncclRecv(out[r].data(), kCount, ncclInt32, (rank + 2) % 3, comm, stream);
    });
  }
  job.synchronize();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(out[static_cast<size_t>(rank)].values(),
              std::vector<int32_t>(kCount, (rank + 2) % 3));
  }
  EXPECT_EQ(blocks_most(), 1U);
}

TEST_F(DeviceCapacity, RanksThatLaunchForThemselvesLeaveRoomForEachOther) {
  set_blocks(16);
  Job job(std::vector<int>(8, 0));
  const AllToAll all(job);
  const auto results = job.run_in_threads([&](int rank, ncclComm_t comm, DeviceStream stream) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(all.call(rank, comm, stream), ncclSuccess);
    return ncclGroupEnd();
  });
  job.synchronize();
  EXPECT_THAT(results, testing::Each(ncclSuccess));
  all.expect_all();
  EXPECT_EQ(blocks_most(), 2U);  // an eighth
}

TEST_F(DeviceCapacity, MessagesMakeRoomForCollectivesOfTheGroup) {
  set_blocks(16);
  Job job({0, 0, 0, 0});
  const AllToAll all(job);
  std::vector<Buffer<int32_t>> sums;
  sums.reserve(4);
  for (int rank = 0; rank < 4; ++rank) {
    sums.emplace_back(0, std::vector<int32_t>(5000, rank));
  }
  job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
    int32_t* const data = sums[static_cast<size_t>(rank)].data();
    EXPECT_EQ(ncclAllReduce(data, data, 5000, ncclInt32, ncclSum, comm, stream), ncclSuccess);
    return all.call(rank, comm, stream);
  });
  job.synchronize();
  all.expect_all();
  EXPECT_EQ(sums.back().values(), std::vector<int32_t>(5000, 6));
  EXPECT_EQ(blocks_most(), 16U);
}

TEST_F(DeviceCapacity, AnAbortEndsTheMessagesOfItsRankOnly) {
  if (machine().waits_in_launch()) {
    GTEST_SKIP() << kWaitsInLaunch;
  }
  set_blocks(1);
  Job job({0, 0});
  Job other({0, 0});
  const AllToAll all(other);
  const Buffer<int32_t> memory(0, 64);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  // No rank sends these; both communicators share one block.
  ASSERT_EQ(ncclRecv(memory.data(), 64, ncclInt32, 1, job.comm(0), job.stream(0)), ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(all.call(rank, other.comm(rank), job.stream(0)), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_EQ(ncclCommAbort(job.take(0)), ncclSuccess);
  job.synchronize();
  all.expect_all();
}

/// An all-reduce by 20 ranks of one device.
ncclResult_t sum_of_twenty(Job& job, const std::vector<Buffer<int32_t>>& data) {
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < job.nranks(); ++rank) {
    int32_t* const values = data[static_cast<size_t>(rank)].data();
    EXPECT_EQ(
        ncclAllReduce(values, values, 3000, ncclInt32, ncclSum, job.comm(rank), job.stream(rank)),
        ncclSuccess);
  }
  return ncclGroupEnd();
}

TEST_F(DeviceCapacity, RingsOfManyRanksShareABlockToo) {
  const Setting algorithm("NCCL_ALGO", "ring");
  const Setting protocol("NCCL_PROTO", "Simple");
  set_blocks(2);
  std::vector<Buffer<int32_t>> data;
  data.reserve(20);
  for (int rank = 0; rank < 20; ++rank) {
    data.emplace_back(0, std::vector<int32_t>(3000, rank));
  }
  Job job(std::vector<int>(20, 0));
  ASSERT_EQ(sum_of_twenty(job, data), ncclSuccess) << ncclGetLastError(nullptr);
  job.synchronize();
  for (const Buffer<int32_t>& values : data) {
    EXPECT_EQ(values.values(), std::vector<int32_t>(3000, 190));
  }
  EXPECT_EQ(blocks_most(), 2U);
}

TEST_F(DeviceCapacity, CollectivesThatDoNotFitAreRefusedInOneSentence) {
  const Setting algorithm("NCCL_ALGO", "tree");  // its lanes wait for each other
  set_blocks(8);
  std::vector<Buffer<int32_t>> data;
  data.reserve(20);
  for (int rank = 0; rank < 20; ++rank) {
    data.emplace_back(0, 3000);
  }
  Job job(std::vector<int>(20, 0));
  EXPECT_EQ(sum_of_twenty(job, data), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("holds 8 blocks"));
}

}  // namespace
}  // namespace plexus::testing_device
