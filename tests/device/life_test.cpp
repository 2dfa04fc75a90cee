// SPDX-License-Identifier: Apache-2.0
// The life of communicators of CUDA ranks, and the memory that the API gives and checks.
#include <cstdlib>

#include "tests/device/job.hpp"

namespace plexus::testing_device {
namespace {

ncclResult_t await(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress && ncclCommGetAsyncError(comm, &state) == ncclSuccess) {
    std::this_thread::yield();
  }
  return state;
}

int device_of(ncclComm_t comm) {
  int device = -2;
  EXPECT_EQ(ncclCommCuDevice(comm, &device), ncclSuccess);
  return device;
}

TEST(DeviceLife, TheDeviceIsTheOneThatIsCurrentAtTheCall) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comms[2];
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  for (int rank = 0; rank < 2; ++rank) {
    SoftwareDevice::set_current(1 - rank);
    EXPECT_EQ(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config), ncclInProgress);
  }
  SoftwareDevice::set_current(0);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(await(comms[rank]), ncclSuccess);
    EXPECT_EQ(device_of(comms[rank]), 1 - rank);
  }
  for (const ncclComm_t comm : comms) {
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
}

TEST(DeviceLife, ADeviceThatIsNotThereIsAnInvalidArgument) {
  ncclComm_t comm = nullptr;
  const int device = 7;
  EXPECT_EQ(ncclCommInitAll(&comm, 1, &device), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("there is no device 7"));
}

TEST(DeviceLife, ChildrenComputeOnTheirParentsDevice) {
  Job job({0, 1, 1});
  std::vector<ncclComm_t> children(3, nullptr);
  EXPECT_THAT(job.run_in_threads([&](int rank, ncclComm_t comm, DeviceStream /*stream*/) {
    SoftwareDevice::set_current(0);  // not what counts
    return ncclCommSplit(comm, 0, -rank, &children[static_cast<size_t>(rank)], nullptr);
  }),
              testing::Each(ncclSuccess));
  const Buffer<int32_t> a(0, std::vector<int32_t>{1});
  const Buffer<int32_t> b(1, std::vector<int32_t>{2});
  const Buffer<int32_t> c(1, std::vector<int32_t>{3});
  const Buffer<int32_t>* const buffers[] = {&a, &b, &c};
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(device_of(children[rank]), job.device(static_cast<int>(rank)));
    int32_t* const data = buffers[rank]->data();
    EXPECT_EQ(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, children[rank],
                            job.stream(static_cast<int>(rank))),
              ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  job.synchronize();
  EXPECT_EQ(a.data()[0], 6);
  EXPECT_EQ(c.data()[0], 6);
  for (const ncclComm_t child : children) {
    EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  }
}

TEST(DeviceMemoryCalls, AllocateOnTheCurrentDevice) {
  SoftwareDevice::set_current(1);
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 1000), ncclSuccess);
  SoftwareDevice::set_current(0);
  const PointerFacts facts = devices().describe_pointer(memory);
  EXPECT_EQ(facts.place, PointerFacts::Place::kDevice);
  EXPECT_EQ(facts.device, 1);
  Job job({1});
  void* handle = nullptr;
  EXPECT_EQ(ncclCommRegister(job.comm(0), memory, 1000, &handle), ncclSuccess);
  EXPECT_EQ(ncclCommDeregister(job.comm(0), handle), ncclSuccess);
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
  EXPECT_EQ(ncclMemFree(memory), ncclInvalidArgument);
}

TEST(DeviceMemoryCalls, BuffersOutOfReachAreRefusedWhenAskedToCheck) {
  setenv("NCCL_CHECK_POINTERS", "1", 1);
  Job job({0});
  unsetenv("NCCL_CHECK_POINTERS");
  const Buffer<int32_t> mine(0, 4);
  const Buffer<int32_t> others(1, 4);
  std::vector<int32_t> of_the_host(4);
  const auto call = [&](const int32_t* in, int32_t* out) {
    return ncclAllReduce(in, out, 4, ncclInt32, ncclSum, job.comm(0), job.stream(0));
  };
  EXPECT_EQ(call(mine.data(), of_the_host.data()), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("that CUDA does not know"));
  EXPECT_EQ(call(others.data(), mine.data()), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("is memory of cuda:1"));
  EXPECT_EQ(call(mine.data(), mine.data()), ncclSuccess);
  job.synchronize();
}

}  // namespace
}  // namespace plexus::testing_device
