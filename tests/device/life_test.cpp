// SPDX-License-Identifier: Apache-2.0
// The lifetime of communicators of CUDA ranks, and the memory that the API allocates and checks.
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
    machine().set_current(machine().device(1 - rank));
    EXPECT_EQ(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config), ncclInProgress);
  }
  machine().set_current(0);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(await(comms[rank]), ncclSuccess);
    EXPECT_EQ(device_of(comms[rank]), machine().device(1 - rank));
  }
  for (const ncclComm_t comm : comms) {
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
}

TEST(DeviceLife, ADeviceThatIsNotThereIsAnInvalidArgument) {
  ncclComm_t comm = nullptr;
  const int device = machine().device_count() + 5;
  EXPECT_EQ(ncclCommInitAll(&comm, 1, &device), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr),
              testing::HasSubstr(fmt::format("there is no device {}", device)));
}

TEST(DeviceLife, ChildrenComputeOnTheirParentsDevice) {
  Job job({0, 1, 1});
  std::vector<ncclComm_t> children(3, nullptr);
  EXPECT_THAT(job.run_in_threads([&](int rank, ncclComm_t comm, DeviceStream /*stream*/) {
    machine().set_current(0);  // must have no effect
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
  EXPECT_EQ(a.value(), 6);
  EXPECT_EQ(c.value(), 6);
  for (const ncclComm_t child : children) {
    EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  }
}

TEST(DeviceMemoryCalls, AllocateOnTheCurrentDevice) {
  const int device = machine().device(1);
  machine().set_current(device);
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 1000), ncclSuccess);
  machine().set_current(0);
  const PointerFacts facts = machine().describe(memory);
  EXPECT_EQ(facts.place, PointerFacts::Place::kDevice);
  EXPECT_EQ(facts.device, device);
  Job job({1});
  void* handle = nullptr;
  EXPECT_EQ(ncclCommRegister(job.comm(0), memory, 1000, &handle), ncclSuccess);
  EXPECT_EQ(ncclCommDeregister(job.comm(0), handle), ncclSuccess);
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
  EXPECT_EQ(ncclMemFree(memory), ncclInvalidArgument);
}

TEST(DeviceMemoryCalls, RegisteredMemoryOfTheLibraryIsReduced) {
  Job job({0, 0, 1});
  constexpr size_t kCount = 100'000;
  std::vector<int64_t*> memory(3);
  std::vector<void*> handles(3);
  for (int rank = 0; rank < 3; ++rank) {
    const auto r = static_cast<size_t>(rank);
    void* given = nullptr;
    machine().set_current(job.device(rank));
    ASSERT_EQ(ncclMemAlloc(&given, kCount * sizeof(int64_t)), ncclSuccess);
    ASSERT_EQ(ncclCommRegister(job.comm(rank), given, kCount * sizeof(int64_t), &handles[r]),
              ncclSuccess);
    memory[r] = static_cast<int64_t*>(given);
    const std::vector<int64_t> values(kCount, rank + 1);
    machine().copy(job.device(rank), given, values.data(), kCount * sizeof(int64_t));
  }
  machine().set_current(0);
  job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
    int64_t* const data = memory[static_cast<size_t>(rank)];
    return ncclAllReduce(data, data, kCount, ncclInt64, ncclSum, comm, stream);
  });
  job.synchronize();
  for (int rank = 0; rank < 3; ++rank) {
    const auto r = static_cast<size_t>(rank);
    std::vector<int64_t> values(kCount);
    machine().copy(job.device(rank), values.data(), memory[r], kCount * sizeof(int64_t));
    EXPECT_EQ(values, std::vector<int64_t>(kCount, 6));
    EXPECT_EQ(ncclCommDeregister(job.comm(rank), handles[r]), ncclSuccess);
    EXPECT_EQ(ncclMemFree(memory[r]), ncclSuccess);
  }
}

TEST(DeviceMemoryCalls, BuffersOutOfReachAreRefusedWhenAskedToCheck) {
  const Setting setting("NCCL_CHECK_POINTERS", "1");
  Job job({0});
  const Buffer<int32_t> mine(0, 4);
  std::vector<int32_t> of_the_host(4);
  const auto call = [&](const int32_t* in, int32_t* out) {
    return ncclAllReduce(in, out, 4, ncclInt32, ncclSum, job.comm(0), job.stream(0));
  };
  EXPECT_EQ(call(mine.data(), of_the_host.data()), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("unknown to CUDA"));
  EXPECT_EQ(call(mine.data(), mine.data()), ncclSuccess);
  job.synchronize();
}

TEST(DeviceMemoryCalls, BuffersOfAnotherDeviceAreRefusedWhenAskedToCheck) {
  if (machine().device_count() < 2) {
    GTEST_SKIP() << "there is one device here";
  }
  const Setting setting("NCCL_CHECK_POINTERS", "1");
  Job job({0});
  const Buffer<int32_t> mine(0, 4);
  const Buffer<int32_t> others(1, 4);
  EXPECT_EQ(
      ncclAllReduce(others.data(), mine.data(), 4, ncclInt32, ncclSum, job.comm(0), job.stream(0)),
      ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("is memory of cuda:1"));
}

}  // namespace
}  // namespace plexus::testing_device
