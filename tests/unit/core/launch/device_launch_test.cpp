// SPDX-License-Identifier: Apache-2.0
// How the calls of a group become kernels, on the software device.
#include "core/launch/device_launch.hpp"

#include <atomic>
#include <memory>

#include "tests/device/job.hpp"
#include "tests/support/software_device.hpp"

namespace plexus::testing_device {
namespace {

using testing::HasSubstr;

class DeviceLaunch : public testing::Test {
 protected:
  ~DeviceLaunch() override {
    software_devices().set_blocks_max(SoftwareDevice::Options{}.blocks_max);
  }

  static ncclResult_t add_up(const Buffer<int32_t>& data, ncclComm_t comm, DeviceStream stream) {
    return ncclAllReduce(data.data(), data.data(), 1, ncclInt32, ncclSum, comm, stream);
  }
  /// Of `nranks` ranks of one device, captured on one stream.
  static GraphShape shape_of_all_reduce(int nranks) {
    Job job(std::vector<int>(static_cast<size_t>(nranks), 0));
    std::vector<Buffer<int32_t>> data;
    for (int rank = 0; rank < nranks; ++rank) {
      data.emplace_back(0, std::vector<int32_t>{1});
    }
    machine().begin_capture(job.stream(0));
    job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream /*stream*/) {
      return add_up(data[static_cast<size_t>(rank)], comm, job.stream(0));
    });
    return machine().shape_of(machine().end_capture(job.stream(0)));
  }

 private:
  Setting device_{"PLEXUS_DEVICE", "cuda"};
  Setting channels_{"NCCL_MAX_CTAS", "1"};
};

TEST_F(DeviceLaunch, TheCallsOfADeviceAreOneKernelWithABlockForEachLane) {
  for (const int nranks : {2, 3, 5}) {
    const GraphShape shape = shape_of_all_reduce(nranks);
    EXPECT_EQ(shape.kernels, 1);
    EXPECT_EQ(shape.blocks, static_cast<uint32_t>(nranks));
  }
}

TEST_F(DeviceLaunch, TheCallsOfEachDeviceAreAKernel) {
  Job job({0, 1});
  const Buffer<int32_t> a(0, std::vector<int32_t>{1});
  const Buffer<int32_t> b(1, std::vector<int32_t>{2});
  for (int rank = 0; rank < 2; ++rank) {
    machine().begin_capture(job.stream(rank));
  }
  job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
    return add_up(rank == 0 ? a : b, comm, stream);
  });
  for (int rank = 0; rank < 2; ++rank) {
    const GraphShape shape = machine().shape_of(machine().end_capture(job.stream(rank)));
    EXPECT_EQ(shape.kernels, 1);
    EXPECT_EQ(shape.blocks, 1U);
  }
}

TEST_F(DeviceLaunch, AKernelComesAfterWhatIsOnAnyStreamOfItsGroup) {
  Job job({0, 0});
  const Buffer<int32_t> a(0, std::vector<int32_t>{1});
  const Buffer<int32_t> b(0, std::vector<int32_t>{2});
  const Buffer<int32_t> ten(0, std::vector<int32_t>{10});
  const auto is_open = std::make_shared<std::atomic<bool>>(false);
  machine().enqueue(job.stream(1), [is_open] { is_open->wait(false); });
  machine().copy_in_order(job.stream(1), b.data(), ten.data(), sizeof(int32_t));
  job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
    return add_up(rank == 0 ? a : b, comm, stream);
  });
  *is_open = true;
  is_open->notify_all();
  machine().synchronize(job.stream(0));
  EXPECT_EQ(a.value(), 11);
}

TEST_F(DeviceLaunch, TheStreamsOfACommunicatorsCallsAreNotOfTwoGraphs) {
  Job job({0, 0});
  const Buffer<int32_t> a(0, std::vector<int32_t>{1});
  for (int rank = 0; rank < 2; ++rank) {
    machine().begin_capture(job.stream(rank));
  }
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (const DeviceStream stream : {job.stream(0), job.stream(1)}) {
    ASSERT_EQ(add_up(a, job.comm(0), stream), ncclSuccess);
    ASSERT_EQ(add_up(a, job.comm(1), stream), ncclSuccess);
  }
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr),
              HasSubstr("the streams of a communicator's calls in a group are captured into "
                        "different graphs"));
  for (int rank = 0; rank < 2; ++rank) {
    machine().end_capture(job.stream(rank));
  }
}

TEST_F(DeviceLaunch, AGroupForWhichTheDeviceHasNoRoomIsRefused) {
  const Setting algorithm("NCCL_ALGO", "tree");  // its lanes wait for each other
  software_devices().set_blocks_max(2);
  Job job({0, 0, 0});
  const Buffer<int32_t> a(0, std::vector<int32_t>{1});
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(add_up(a, job.comm(rank), job.stream(rank)), ncclSuccess);
  }
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr),
              HasSubstr("cuda:0 holds 2 blocks of the kernel at once and 3 ranks of this group "
                        "would take 5: set NCCL_MAX_CTAS to a lower number of channels, or use "
                        "fewer ranks per device"));
}

}  // namespace
}  // namespace plexus::testing_device
