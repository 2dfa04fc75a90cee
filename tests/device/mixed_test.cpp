// SPDX-License-Identifier: Apache-2.0
// Communicators of CUDA ranks and host ranks together, in one process.
#include "tests/device/job.hpp"

namespace plexus::testing_device {
namespace {

constexpr int kHost = -1;

/// Rank r on device on[r], or on the host.
class MixedJob {
 public:
  explicit MixedJob(const std::vector<int>& on) : on_(on), comms_(on.size()) {
    ncclUniqueId id;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (size_t rank = 0; rank < on.size(); ++rank) {
      setenv("PLEXUS_DEVICE", on[rank] == kHost ? "host" : "cuda", 1);
      machine().set_current(machine().device(std::max(on[rank], 0)));
      EXPECT_EQ(
          ncclCommInitRank(&comms_[rank], static_cast<int>(on.size()), id, static_cast<int>(rank)),
          ncclSuccess);
    }
    setenv("PLEXUS_DEVICE", "cuda", 1);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    machine().set_current(0);
  }
  ~MixedJob() {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (const ncclComm_t comm : comms_) {
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    }
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  }
  MixedJob(const MixedJob&) = delete;
  MixedJob& operator=(const MixedJob&) = delete;

  void expect_all_reduce(size_t count, bool in_threads) {
    std::vector<std::vector<int64_t>> on_host;  // of host ranks; allocated once, addresses stay
    std::vector<Buffer<int64_t>> on_device;     // of CUDA ranks
    std::vector<int64_t*> places;
    std::vector<DeviceStream> streams;
    on_host.reserve(on_.size());
    int64_t sum = 0;
    for (size_t rank = 0; rank < on_.size(); ++rank) {
      const std::vector<int64_t> values(count, static_cast<int64_t>(rank) + 1);
      sum += values[0];
      if (on_[rank] == kHost) {
        on_host.push_back(values);
        places.push_back(on_host.back().data());
        streams.push_back(nullptr);
      } else {
        on_device.emplace_back(on_[rank], values);
        places.push_back(on_device.back().data());
        streams.push_back(machine().make_stream(machine().device(on_[rank])));
      }
    }
    const auto call = [&](size_t rank) {
      EXPECT_EQ(ncclAllReduce(places[rank], places[rank], count, ncclInt64, ncclSum, comms_[rank],
                              streams[rank]),
                ncclSuccess)
          << ncclGetLastError(nullptr);
    };
    std::vector<std::thread> threads;
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (size_t rank = 0; rank < on_.size(); ++rank) {
      if (in_threads) {
        threads.emplace_back(call, rank);
      } else {
        call(rank);
      }
    }
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (const DeviceStream stream : streams) {
      if (stream != nullptr) {
        machine().synchronize(stream);
        machine().destroy_stream(stream);
      }
    }
    for (const Buffer<int64_t>& buffer : on_device) {
      EXPECT_THAT(buffer.values(), testing::Each(sum)) << count;
    }
    for (const std::vector<int64_t>& buffer : on_host) {
      EXPECT_THAT(buffer, testing::Each(sum)) << count;
    }
  }

 private:
  std::vector<int> on_;
  std::vector<ncclComm_t> comms_;
};

TEST(MixedRanks, AllReduceInOneGroup) {
  MixedJob job({0, kHost, 1, kHost});
  for (const size_t count : {size_t{1}, size_t{500}, size_t{60'000}, size_t{400'000}}) {
    job.expect_all_reduce(count, false);
  }
}

TEST(MixedRanks, AllReduceInThreads) {
  MixedJob job({kHost, 0, 0});
  for (const size_t count : {size_t{1}, size_t{500}, size_t{60'000}, size_t{400'000}}) {
    job.expect_all_reduce(count, true);
  }
}

TEST(MixedRanks, SpeakEveryProtocol) {
  for (const char* const protocol : {"LL", "LL128", "Simple"}) {
    const Setting setting("NCCL_PROTO", protocol);
    MixedJob job({0, kHost});
    job.expect_all_reduce(30'000, false);
  }
}

}  // namespace
}  // namespace plexus::testing_device
