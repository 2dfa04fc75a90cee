// SPDX-License-Identifier: Apache-2.0
// The life of a framework's process group, in its order: a thread per rank that makes its
// communicator without blocking and polls, registered memory pools, coalesced calls on a separate
// stream, a watchdog thread, groups made by split, finalize, destroy, abort.
#include <atomic>
#include <chrono>

#include "tests/device/job.hpp"

namespace plexus::testing_device {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr int kRanks = 4;
constexpr size_t kCount = 10'000;

/// A configuration from a program built with `version`, whose struct was shorter.
ncclConfig_t config_of(unsigned int version, size_t size_bytes) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.size = size_bytes;
  config.version = version;
  return config;
}

/// Polls until `comm` is ready, as frameworks do; `result` is the value that the call returned.
ncclResult_t settle(ncclResult_t result, const ncclComm_t& comm) {
  const auto limit = steady_clock::now() + seconds(30);
  while ((result == ncclInProgress || comm == nullptr) && steady_clock::now() < limit) {
    std::this_thread::yield();
    if (comm != nullptr && ncclCommGetAsyncError(comm, &result) != ncclSuccess) {
      return ncclInternalError;
    }
  }
  return result;
}

/// Checks for failures while the rank works.
class Watchdog {
 public:
  explicit Watchdog(ncclComm_t comm)
      : thread_([this, comm] {
          while (!stop_.load()) {
            ncclResult_t state = ncclSuccess;
            if (ncclCommGetAsyncError(comm, &state) != ncclSuccess ||
                (state != ncclSuccess && state != ncclInProgress)) {
              alarmed_ = true;
            }
            std::this_thread::yield();
          }
        }) {}
  ~Watchdog() {
    stop_ = true;
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  [[nodiscard]] bool alarmed() const { return alarmed_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<bool> alarmed_{false};
  std::thread thread_;
};

/// One rank of the group, in its own thread.
class Member {
 public:
  Member(int rank, const ncclConfig_t& config)
      : rank_(rank), device_(machine().device(rank)), config_(config) {
    machine().set_current(device_);
    stream_ = machine().make_stream(device_);
  }
  ~Member() { machine().destroy_stream(stream_); }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  void join(const ncclUniqueId& id) {
    const ncclResult_t made = ncclCommInitRankConfig(&comm_, kRanks, id, rank_, &config_);
    ASSERT_EQ(settle(made, comm_), ncclSuccess) << ncclGetLastError(nullptr);
    int device = -2;
    ASSERT_EQ(ncclCommCuDevice(comm_, &device), ncclSuccess);
    EXPECT_EQ(device, device_);
  }

  /// Sums of a registered buffer, several calls in one group, none of which reads what another
  /// writes: those of one communicator share no order between channels.
  void work() {
    const Watchdog watchdog(comm_);
    const Buffer<float> values(device_, std::vector<float>(kCount, static_cast<float>(rank_ + 1)));
    const Buffer<float> others(device_, std::vector<float>(kCount, static_cast<float>(rank_ + 1)));
    const Buffer<float> gathered(device_, kCount * kRanks);
    void* handle = nullptr;
    ASSERT_EQ(ncclCommRegister(comm_, values.data(), kCount * sizeof(float), &handle), ncclSuccess);
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    settle_call(
        ncclAllReduce(values.data(), values.data(), kCount, ncclFloat32, ncclSum, comm_, stream_));
    settle_call(
        ncclAllReduce(others.data(), others.data(), kCount, ncclFloat32, ncclMax, comm_, stream_));
    settle_call(ncclGroupEnd());
    settle_call(ncclAllGather(values.data(), gathered.data(), kCount, ncclFloat32, comm_, stream_));
    machine().synchronize(stream_);
    EXPECT_EQ(others.values(), std::vector<float>(kCount, kRanks));
    EXPECT_EQ(gathered.values(), std::vector<float>(kCount * kRanks, 10));
    scale_by_a_factor(values);
    ASSERT_EQ(ncclCommDeregister(comm_, handle), ncclSuccess);
    EXPECT_FALSE(watchdog.alarmed());
  }

  /// Splits by parity; the other ranks pass NCCL_SPLIT_NOCOLOR.
  void split() {
    const bool is_even = rank_ % 2 == 0;
    ncclComm_t child = nullptr;
    ncclConfig_t config = config_;
    const ncclResult_t made =
        ncclCommSplit(comm_, is_even ? 0 : NCCL_SPLIT_NOCOLOR, rank_, &child, &config);
    ASSERT_TRUE(made == ncclSuccess || made == ncclInProgress) << ncclGetLastError(nullptr);
    ASSERT_EQ(settle(made, comm_), ncclSuccess);
    if (!is_even) {
      EXPECT_EQ(child, nullptr);
      return;
    }
    ASSERT_EQ(settle(ncclInProgress, child), ncclSuccess) << ncclGetLastError(nullptr);
    int nranks = 0;
    ASSERT_EQ(ncclCommCount(child, &nranks), ncclSuccess);
    EXPECT_EQ(nranks, 2);
    const Buffer<float> token(device_, std::vector<float>{1});  // a barrier
    const ncclResult_t called =
        ncclAllReduce(token.data(), token.data(), 1, ncclFloat32, ncclSum, child, stream_);
    ASSERT_EQ(settle(called, child), ncclSuccess);
    machine().synchronize(stream_);
    EXPECT_EQ(token.value(), 2);
    ASSERT_EQ(ncclCommAbort(child), ncclSuccess);  // as a framework that shuts down
  }

  void leave() {
    ASSERT_EQ(settle(ncclCommFinalize(comm_), comm_), ncclSuccess) << ncclGetLastError(nullptr);
    ASSERT_EQ(ncclCommDestroy(comm_), ncclSuccess);
  }

 private:
  void settle_call(ncclResult_t result) {
    ASSERT_EQ(settle(result, comm_), ncclSuccess) << ncclGetLastError(nullptr);
  }

  void scale_by_a_factor(const Buffer<float>& values) {
    float factor = 0.5F;
    ncclRedOp_t op = ncclSum;
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comm_),
              ncclSuccess);
    settle_call(
        ncclAllReduce(values.data(), values.data(), kCount, ncclFloat32, op, comm_, stream_));
    ASSERT_EQ(ncclRedOpDestroy(op, comm_), ncclSuccess);
    machine().synchronize(stream_);
    EXPECT_EQ(values.values(), std::vector<float>(kCount, 20));
  }

  int rank_;
  int device_;
  ncclConfig_t config_;
  DeviceStream stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
};

void live_as_a_process_group(const ncclConfig_t& config) {
  int version = 0;
  ASSERT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  threads.reserve(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Member member(rank, config);
      member.join(id);
      if (testing::Test::HasFatalFailure()) {
        return;
      }
      member.work();
      member.split();
      member.leave();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(DeviceProcessGroup, LivesWithoutBlocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  live_as_a_process_group(config);
}

TEST(DeviceProcessGroup, LivesBlocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  config.splitShare = 0;
  config.minCTAs = 1;
  config.maxCTAs = 4;
  config.commName = "process group";
  live_as_a_process_group(config);
}

TEST(DeviceProcessGroup, LivesWhenBuiltForAnOlderRelease) {
  // NCCL 2.17 had the fields up to splitShare, 2.27 those up to shrinkShare, 2.28 those up to
  // nvlinkCentricSched.
  struct Release {
    unsigned int version;
    size_t size_bytes;
  };
  for (const Release release : {Release{21700, offsetof(ncclConfig_t, trafficClass)},
                                Release{22703, offsetof(ncclConfig_t, nvlsCTAs)},
                                Release{22809, offsetof(ncclConfig_t, graphUsageMode)}}) {
    SCOPED_TRACE(release.version);
    ncclConfig_t config = config_of(release.version, release.size_bytes);
    config.blocking = 0;
    live_as_a_process_group(config);
  }
}

}  // namespace
}  // namespace plexus::testing_device
