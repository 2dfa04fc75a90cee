// SPDX-License-Identifier: Apache-2.0
// What the library asks of a driver, and when: nothing that waits beside its own kernels, nothing
// at all in the thread that moves network slots, no memory from a shape's second call on. The
// software device checks this in every test here; these tests check the software device, and count.
#include <chrono>

#include "core/device/device_memory.hpp"
#include "tests/device/job.hpp"
#include "tests/support/software_device.hpp"

namespace plexus::testing_device {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

class Rules : public testing::Test {
 protected:
  void SetUp() override {
    if (!machine().is_software()) {
      GTEST_SKIP() << "the software device checks and counts";
    }
  }
};

TEST(CallRulesDeathTest, TheThreadThatMovesSlotsAsksNothing) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        SoftwareDevice device({});
        device.allow(DriverCalls::kNone);
        (void)device.find_fault(0);
      },
      "cudaStreamQuery is called by the thread that moves network slots");
}

TEST(CallRulesDeathTest, NothingIsFreedBesideAKernel) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        CallRules rules(true);
        rules.begin_kernel();
        rules.allow(DriverCalls::kGrowing);
        rules.note_growing("cudaMalloc");
        rules.note_waiting("cudaFree");
      },
      "cudaFree is called while a kernel of the library may run");
}

TEST(CallRulesDeathTest, MemoryIsTakenBesideAKernelOnlyWhereThatIsCounted) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        CallRules rules(true);
        rules.begin_kernel();
        rules.note_growing("cudaHostAlloc");
      },
      "cudaHostAlloc is called while a kernel of the library may run");
}

/// All sizes twice: the second round takes nothing, however many launches are in flight.
void expect_no_growth(Job& job) {
  constexpr size_t kMost = 300'000;
  constexpr int kInFlight = 8;
  std::vector<Buffer<int32_t>> buffers;
  for (int rank = 0; rank < job.nranks(); ++rank) {
    buffers.emplace_back(job.device(rank), std::vector<int32_t>(kMost, 1));
  }
  const auto run_all = [&] {
    for (const size_t count : {size_t{1}, size_t{1000}, kMost}) {
      for (int i = 0; i < kInFlight; ++i) {
        job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
          int32_t* const data = buffers[static_cast<size_t>(rank)].data();
          return ncclAllReduce(data, data, count, ncclInt32, ncclSum, comm, stream);
        });
      }
      job.synchronize();
    }
  };
  run_all();
  const size_t before = software_devices().growth();
  run_all();
  EXPECT_EQ(software_devices().growth(), before);
}

TEST_F(Rules, ASecondCallOfAShapeTakesNoMemory) {
  Job job({0, 0, 1, 1});
  expect_no_growth(job);
}

TEST_F(Rules, ASecondCallOfAShapeTakesNoMemoryOverANetwork) {
  const OverNetwork network;
  Job job({0, 0});
  expect_no_growth(job);
}

/// A graph gives back what its calls had.
TEST_F(Rules, GraphsThatAreGoneLeaveNothingBehind) {
  Job job({0, 0});
  const Buffer<int32_t> a(0, std::vector<int32_t>{1});
  const Buffer<int32_t> b(0, std::vector<int32_t>{1});
  const auto capture = [&] {
    constexpr int kCalls = 300;
    machine().begin_capture(job.stream(0));
    for (int i = 0; i < kCalls; ++i) {
      job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream /*stream*/) {
        int32_t* const data = (rank == 0 ? a : b).data();
        return ncclAllReduce(data, data, 1, ncclInt32, ncclMax, comm, job.stream(0));
      });
    }
    machine().replay(machine().end_capture(job.stream(0)), job.stream(0));
    job.synchronize();
  };
  capture();
  const size_t before = software_devices().growth();
  for (int i = 0; i < 5; ++i) {
    capture();
  }
  EXPECT_EQ(software_devices().growth(), before);
  EXPECT_EQ(a.value(), 1);
}

/// The program's kernel is loaded when our kernel runs: some drivers hold a lock until the device
/// is idle (SoftwareHabits::driver_lock), and ours needs the thread that moves slots to end.
TEST_F(Rules, AFirstLaunchOfTheProgramDoesNotStopTheNetwork) {
  const OverNetwork network;
  Job job({0, 0});
  constexpr size_t kCount = 250'000;
  const Buffer<int32_t> a(0, std::vector<int32_t>(kCount, 1));
  const Buffer<int32_t> b(0, std::vector<int32_t>(kCount, 1));
  const DeviceStream another = machine().make_stream(0);
  for (int i = 0; i < 3; ++i) {
    job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
      int32_t* const data = (rank == 0 ? a : b).data();
      return ncclAllReduce(data, data, kCount, ncclInt32, ncclSum, comm, stream);
    });
    machine().launch_empty(another, 1, 32);
  }
  job.synchronize();
  machine().synchronize(another);
  machine().destroy_stream(another);
  EXPECT_EQ(a.values(), std::vector<int32_t>(kCount, 8));
}

/// Slots of 4 MiB for each connection would take gigabytes where many ranks share a device.
TEST_F(Rules, ConnectionsByAddressHaveNoSlots) {
  constexpr int kRanks = 4;
  constexpr size_t kCount = 100'000;
  constexpr size_t kSlotsOfOne = size_t{4} << 20;
  const Setting channels("NCCL_MAX_NCHANNELS", "1");
  Job job(std::vector<int>(kRanks, 0));
  std::vector<Buffer<int32_t>> buffers;
  for (int i = 0; i < 2 * kRanks; ++i) {
    buffers.emplace_back(0, std::vector<int32_t>(kRanks * kCount, i));
  }
  const size_t before = software_devices().device_bytes();
  job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
    const auto r = static_cast<size_t>(rank);
    return ncclAlltoAll(buffers[r].data(), buffers[kRanks + r].data(), kCount, ncclInt32, comm,
                        stream);
  });
  job.synchronize();
  EXPECT_EQ(buffers[kRanks].values()[(kRanks - 1) * kCount], kRanks - 1);
  EXPECT_LT(software_devices().device_bytes() - before, kRanks * (kRanks - 1) * kSlotsOfOne / 4);
}

/// Memory of a pool is read by its own device only, so bytes go through slots.
TEST_F(Rules, MemoryThatOtherDevicesCannotReadIsSentThroughSlots) {
  if (machine().device_count() < 2) {
    GTEST_SKIP() << "there is one device here";
  }
  Job job({0, 1});
  constexpr size_t kCount = 300'000;
  const std::vector<int32_t> ones(kCount, 1);
  const Buffer<int32_t> open(1, ones);
  auto* const closed =
      static_cast<int32_t*>(software_devices().allocate_private(0, kCount * sizeof(int32_t)));
  for (int repeat = 0; repeat < 3; ++repeat) {
    // First with memory that peers may write to, whose address they must not use afterwards.
    const Buffer<int32_t> before(0, ones);
    for (int32_t* const mine : {before.data(), closed}) {
      machine().copy(0, mine, ones.data(), kCount * sizeof(int32_t));
      open.write(ones);
      job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
        int32_t* const data = rank == 0 ? mine : open.data();
        return ncclAllReduce(data, data, kCount, ncclInt32, ncclSum, comm, stream);
      });
      job.synchronize();
      std::vector<int32_t> values(kCount);
      machine().copy(0, values.data(), mine, kCount * sizeof(int32_t));
      EXPECT_EQ(values, std::vector<int32_t>(kCount, 2));
      EXPECT_EQ(open.values(), values);
    }
  }
  machine().release(0, closed);
}

/// A kernel that accesses memory that is not there tells nobody that it has ended.
TEST_F(Rules, AKernelThatFaultsIsReported) {
  Job job({0, 0});
  const Buffer<int32_t> memory(0, 1000);
  software_devices().break_kernels(job.device(0));
  job.run_in_group([&](int /*rank*/, ncclComm_t comm, DeviceStream stream) {
    return ncclAllReduce(memory.data(), memory.data(), 10, ncclInt32, ncclSum, comm, stream);
  });
  std::vector<ncclResult_t> states;  // whoever finds it tells the others
  for (int rank = 0; rank < 2; ++rank) {
    ncclResult_t state = ncclSuccess;
    const auto limit = steady_clock::now() + seconds(20);
    while (state == ncclSuccess && steady_clock::now() < limit) {
      EXPECT_EQ(ncclCommGetAsyncError(job.comm(rank), &state), ncclSuccess);
      std::this_thread::yield();
    }
    states.push_back(state);
  }
  EXPECT_THAT(states, testing::Contains(ncclUnhandledCudaError));
  EXPECT_THAT(states, testing::Each(testing::AnyOf(ncclUnhandledCudaError, ncclRemoteError)));
  job.synchronize();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ncclCommAbort(job.take(rank)), ncclSuccess);
  }
  software_devices().break_kernels(-1);
}

}  // namespace
}  // namespace plexus::testing_device
