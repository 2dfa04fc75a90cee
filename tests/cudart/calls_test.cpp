// SPDX-License-Identifier: Apache-2.0
// Devices, memory, copies, events and what the CUDA runtime says of wrong arguments.
#include <cstring>
#include <cuda_runtime.h>
#include <nccl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

#define OK(call) ASSERT_EQ(call, cudaSuccess) << #call

TEST(Devices, AreAsManyAsTheEnvironmentSays) {
  int count = 0;
  OK(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 8);  // PLEXUS_CUDART_DEVICES of this test
  EXPECT_EQ(cudaSetDevice(8), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
}

TEST(Devices, AreCurrentForAThread) {
  OK(cudaSetDevice(3));
  std::thread([] {
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 0);
    EXPECT_EQ(cudaSetDevice(5), cudaSuccess);
  }).join();
  int device = -1;
  OK(cudaGetDevice(&device));
  EXPECT_EQ(device, 3);
  OK(cudaSetDevice(0));
}

TEST(Devices, HaveIdsOfTheirOwn) {
  cudaDeviceProp first{};
  cudaDeviceProp second{};
  OK(cudaGetDeviceProperties(&first, 0));
  OK(cudaGetDeviceProperties(&second, 1));
  EXPECT_NE(std::memcmp(&first.uuid, &second.uuid, sizeof(first.uuid)), 0);
  EXPECT_NE(first.pciBusID, second.pciBusID);
  EXPECT_GT(first.totalGlobalMem, 0U);
  char id[32] = {};
  OK(cudaDeviceGetPCIBusId(id, sizeof(id), 1));
  int device = -1;
  OK(cudaDeviceGetByPCIBusId(&device, id));
  EXPECT_EQ(device, 1);
  EXPECT_EQ(cudaDeviceGetByPCIBusId(&device, "0000:00:00.0"), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetPCIBusId(id, 4, 1), cudaErrorInvalidValue);
  int value = 0;
  OK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
  EXPECT_EQ(value, first.major);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(200), 0),
            cudaErrorInvalidValue);
}

TEST(Devices, ReachEachOtherOnceEnabled) {
  OK(cudaSetDevice(0));
  int can = 0;
  OK(cudaDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 1);
  OK(cudaDeviceCanAccessPeer(&can, 0, 0));
  EXPECT_EQ(can, 0);
  OK(cudaDeviceEnablePeerAccess(1, 0));
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
  OK(cudaDeviceDisablePeerAccess(1));
  EXPECT_EQ(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
}

TEST(Errors, HaveNamesAndWords) {
  EXPECT_STREQ(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorPeerAccessAlreadyEnabled),
               "peer access already enabled");
  EXPECT_STREQ(cudaGetErrorName(static_cast<cudaError_t>(12345)), "unrecognized error code");
}

TEST(Memory, IsLimitedPerDevice) {
  OK(cudaSetDevice(2));
  size_t before = 0;
  size_t total = 0;
  OK(cudaMemGetInfo(&before, &total));
  EXPECT_EQ(total, size_t{64} << 20);  // PLEXUS_CUDART_MEMORY of this test
  void* most = nullptr;
  OK(cudaMalloc(&most, before));
  size_t now = 0;
  OK(cudaMemGetInfo(&now, &total));
  EXPECT_EQ(now, 0U);
  void* more = &total;
  EXPECT_EQ(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(more, nullptr);
  OK(cudaSetDevice(3));
  OK(cudaMalloc(&more, 1));  // another device has room
  OK(cudaFree(more));
  OK(cudaFree(most));
  OK(cudaSetDevice(2));
  OK(cudaMemGetInfo(&now, &total));
  EXPECT_EQ(now, before);
  EXPECT_EQ(cudaMalloc(&more, SIZE_MAX), cudaErrorMemoryAllocation);
  cudaGetLastError();
  OK(cudaSetDevice(0));
}

TEST(Memory, OfManySmallPiecesIsGivenBack) {
  size_t before = 0;
  size_t total = 0;
  OK(cudaMemGetInfo(&before, &total));
  std::vector<unsigned char*> pieces;
  for (size_t i = 0; i < 20000; ++i) {
    unsigned char* piece = nullptr;
    OK(cudaMalloc(&piece, 1 + i % 700));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(piece) % 256, 0U);
    OK(cudaMemset(piece, static_cast<int>(i % 251), 1 + i % 700));
    pieces.push_back(piece);
  }
  OK(cudaDeviceSynchronize());
  for (size_t i = 0; i < pieces.size(); ++i) {
    ASSERT_EQ(pieces[i][i % 700], i % 251) << i;  // host memory, so it can be looked at
  }
  for (unsigned char* const piece : pieces) {
    OK(cudaFree(piece));
  }
  size_t after = 0;
  OK(cudaMemGetInfo(&after, &total));
  EXPECT_EQ(after, before);
}

TEST(Memory, IsDescribed) {
  OK(cudaSetDevice(4));
  int* device = nullptr;
  int* host = nullptr;
  int* managed = nullptr;
  std::vector<int> own(100);
  OK(cudaMalloc(&device, 400));
  OK(cudaMallocHost(&host, 400));
  OK(cudaMallocManaged(&managed, 400));
  OK(cudaSetDevice(0));
  cudaPointerAttributes attributes{};
  OK(cudaPointerGetAttributes(&attributes, device + 7));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 4);
  EXPECT_EQ(attributes.devicePointer, device + 7);
  EXPECT_EQ(attributes.hostPointer, nullptr);
  OK(cudaPointerGetAttributes(&attributes, host));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  OK(cudaPointerGetAttributes(&attributes, managed));
  EXPECT_EQ(attributes.type, cudaMemoryTypeManaged);
  OK(cudaPointerGetAttributes(&attributes, own.data()));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  OK(cudaHostRegister(own.data(), 400, cudaHostRegisterDefault));
  OK(cudaPointerGetAttributes(&attributes, own.data() + 1));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_EQ(cudaHostRegister(own.data() + 50, 400, 0), cudaErrorHostMemoryAlreadyRegistered);
  OK(cudaHostUnregister(own.data()));
  EXPECT_EQ(cudaHostUnregister(own.data()), cudaErrorHostMemoryNotRegistered);
  void* shared = nullptr;
  ASSERT_EQ(ncclMemAlloc(&shared, 400), ncclSuccess);
  OK(cudaPointerGetAttributes(&attributes, shared));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  OK(cudaMemset(shared, 1, 400));
  EXPECT_EQ(cudaFree(shared), cudaErrorInvalidValue);
  ASSERT_EQ(ncclMemFree(shared), ncclSuccess);
  OK(cudaFree(device));
  OK(cudaFreeHost(host));
  OK(cudaFree(managed));
}

TEST(Memory, IsNotFreedWrongly) {
  char* device = nullptr;
  char* host = nullptr;
  char own = 0;
  OK(cudaMalloc(&device, 1000));
  OK(cudaMallocHost(&host, 1000));
  EXPECT_EQ(cudaFree(device + 8), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(host), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(device), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(&own), cudaErrorInvalidValue);
  OK(cudaFree(device));
  EXPECT_EQ(cudaFree(device), cudaErrorInvalidValue);
  OK(cudaFreeHost(host));
  EXPECT_EQ(cudaFreeHost(host), cudaErrorInvalidValue);
  OK(cudaFree(nullptr));
  EXPECT_EQ(cudaMalloc(static_cast<void**>(nullptr), 8), cudaErrorInvalidValue);
  OK(cudaMalloc(&device, 0));
  EXPECT_EQ(device, nullptr);
}

TEST(Memory, IsFreedInTheOrderOfAStream) {
  cudaStream_t stream = nullptr;
  OK(cudaStreamCreate(&stream));
  size_t before = 0;
  size_t total = 0;
  OK(cudaMemGetInfo(&before, &total));
  char* memory = nullptr;
  OK(cudaMallocAsync(&memory, 1 << 20, stream));
  OK(cudaMemsetAsync(memory, 5, 1 << 20, stream));
  char last = 0;
  OK(cudaMemcpyAsync(&last, memory + (1 << 20) - 1, 1, cudaMemcpyDeviceToHost, stream));
  OK(cudaFreeAsync(memory, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(last, 5);
  size_t after = 0;
  OK(cudaMemGetInfo(&after, &total));
  EXPECT_EQ(after, before);
  EXPECT_EQ(cudaFreeAsync(memory, stream), cudaErrorInvalidValue);
  OK(cudaStreamDestroy(stream));
}

TEST(Pools, GiveMemoryOfTheirDevice) {
  OK(cudaSetDevice(0));
  cudaMemPool_t own = nullptr;
  cudaMemPool_t same = nullptr;
  cudaMemPool_t made = nullptr;
  OK(cudaDeviceGetDefaultMemPool(&own, 1));
  OK(cudaDeviceGetMemPool(&same, 1));
  EXPECT_EQ(own, same);
  uint64_t bytes = 1 << 20;
  OK(cudaMemPoolSetAttribute(own, cudaMemPoolAttrReleaseThreshold, &bytes));
  bytes = 0;
  OK(cudaMemPoolGetAttribute(own, cudaMemPoolAttrReleaseThreshold, &bytes));
  EXPECT_EQ(bytes, 1U << 20);
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 2};
  OK(cudaMemPoolCreate(&made, &properties));
  void* memory = nullptr;
  OK(cudaMallocFromPoolAsync(&memory, 5000, made, nullptr));
  cudaPointerAttributes attributes{};
  OK(cudaPointerGetAttributes(&attributes, memory));
  EXPECT_EQ(attributes.device, 2);
  OK(cudaMemPoolGetAttribute(made, cudaMemPoolAttrUsedMemCurrent, &bytes));
  EXPECT_GE(bytes, 5000U);
  OK(cudaFreeAsync(memory, nullptr));
  OK(cudaMemPoolTrimTo(made, 0));
  OK(cudaMemPoolDestroy(made));
  EXPECT_EQ(cudaMemPoolDestroy(made), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolDestroy(own), cudaErrorInvalidValue);
  properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
  EXPECT_EQ(cudaMemPoolCreate(&made, &properties), cudaErrorNotSupported);
}

TEST(Copies, CheckSizesAndKinds) {
  char* device = nullptr;
  std::vector<char> own(2000, 3);
  OK(cudaMalloc(&device, 1000));
  EXPECT_EQ(cudaMemcpy(device, own.data(), 1001, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device + 999, own.data(), 2, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(own.data(), device + 1, 1000, cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(own.data(), own.data() + 1000, 8, cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device, own.data(), 8, static_cast<cudaMemcpyKind>(7)),
            cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemcpy(nullptr, own.data(), 8, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(device, 0, 1001), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(own.data(), 0, 8), cudaErrorInvalidValue);
  OK(cudaMemcpy(device, own.data(), 1000, cudaMemcpyDefault));
  EXPECT_EQ(device[999], 3);
  OK(cudaFree(device));
}

TEST(Copies, OfRowsAndLayers) {
  constexpr size_t kWidth = 100;
  constexpr size_t kHeight = 7;
  char* device = nullptr;
  size_t pitch = 0;
  OK(cudaMallocPitch(&device, &pitch, kWidth, kHeight));
  std::vector<char> from(kWidth * kHeight);
  for (size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<char>(i);
  }
  OK(cudaMemset2D(device, pitch, 1, kWidth, kHeight));
  OK(cudaMemcpy2D(device, pitch, from.data(), kWidth, kWidth, kHeight, cudaMemcpyHostToDevice));
  std::vector<char> to(from.size());
  OK(cudaMemcpy2D(to.data(), kWidth, device, pitch, kWidth, kHeight, cudaMemcpyDeviceToHost));
  EXPECT_EQ(to, from);
  EXPECT_EQ(
      cudaMemcpy2D(to.data(), kWidth - 1, device, pitch, kWidth, kHeight, cudaMemcpyDeviceToHost),
      cudaErrorInvalidPitchValue);
  cudaMemcpy3DParms box{};
  box.srcPtr = {device, pitch, kWidth, kHeight};
  box.dstPtr = {to.data(), kWidth, kWidth, kHeight};
  box.extent = {kWidth, kHeight, 1};
  box.kind = cudaMemcpyDeviceToHost;
  std::fill(to.begin(), to.end(), 0);
  OK(cudaMemcpy3D(&box));
  EXPECT_EQ(to, from);
  OK(cudaFree(device));
}

TEST(Events, MeasureTime) {
  cudaStream_t stream = nullptr;
  cudaEvent_t events[2] = {};
  cudaEvent_t untimed = nullptr;
  OK(cudaStreamCreate(&stream));
  OK(cudaEventCreate(&events[0]));
  OK(cudaEventCreate(&events[1]));
  OK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  float time = -1;
  EXPECT_EQ(cudaEventElapsedTime(&time, events[0], events[1]), cudaErrorInvalidResourceHandle);
  OK(cudaEventRecord(events[0], stream));
  OK(cudaLaunchHostFunc(
      stream, [](void*) { usleep(2000); }, nullptr));
  OK(cudaEventRecord(events[1], stream));
  OK(cudaEventRecord(untimed, stream));
  OK(cudaEventSynchronize(events[1]));
  OK(cudaEventElapsedTime(&time, events[0], events[1]));
  EXPECT_GE(time, 1.9F);
  OK(cudaEventSynchronize(untimed));
  EXPECT_EQ(cudaEventElapsedTime(&time, events[0], untimed), cudaErrorInvalidResourceHandle);
  OK(cudaEventDestroy(untimed));
  EXPECT_EQ(cudaEventRecord(untimed, stream), cudaErrorInvalidResourceHandle);
  OK(cudaSetDevice(1));
  cudaEvent_t others = nullptr;
  OK(cudaEventCreate(&others));
  OK(cudaSetDevice(0));
  EXPECT_EQ(cudaEventRecord(others, stream), cudaErrorInvalidResourceHandle);
  OK(cudaStreamWaitEvent(stream, others, 0));
  OK(cudaEventDestroy(others));
  OK(cudaStreamDestroy(stream));
}

TEST(Streams, AreRefusedOnceDestroyed) {
  cudaStream_t stream = nullptr;
  OK(cudaStreamCreate(&stream));
  OK(cudaStreamDestroy(stream));
  EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaLaunchHostFunc(
                stream, [](void*) {}, nullptr),
            cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(nullptr), cudaErrorInvalidResourceHandle);
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  float value = 1;
  EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, stream),
            ncclInvalidArgument);
  EXPECT_THAT(std::string(ncclGetLastError(comm)), testing::HasSubstr("cudaStreamCreate"));
  ASSERT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST(Streams, MayBeTenThousand) {
  std::vector<cudaStream_t> streams(10000);
  int* counter = nullptr;
  OK(cudaMallocManaged(&counter, sizeof(int)));
  *counter = 0;
  for (cudaStream_t& stream : streams) {
    OK(cudaStreamCreate(&stream));
  }
  for (cudaStream_t const stream : streams) {
    OK(cudaLaunchHostFunc(
        stream, [](void* user) { ++*static_cast<int*>(user); }, counter));
  }
  OK(cudaStreamSynchronize(nullptr));  // of all blocking streams
  EXPECT_EQ(*counter, 10000);
  for (cudaStream_t const stream : streams) {
    OK(cudaStreamDestroy(stream));
  }
  OK(cudaFree(counter));
}

TEST(Streams, HaveWhatTheyWereMadeWith) {
  OK(cudaSetDevice(6));
  int least = 0;
  int greatest = 0;
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT_LT(greatest, least);
  cudaStream_t stream = nullptr;
  OK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest - 10));
  OK(cudaSetDevice(0));
  unsigned flags = 0;
  int number = 0;
  OK(cudaStreamGetFlags(stream, &flags));
  EXPECT_EQ(flags, static_cast<unsigned>(cudaStreamNonBlocking));
  OK(cudaStreamGetPriority(stream, &number));
  EXPECT_EQ(number, greatest);
  OK(cudaStreamGetDevice(stream, &number));
  EXPECT_EQ(number, 6);
  OK(cudaStreamDestroy(stream));
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, 77), cudaErrorInvalidValue);
}

TEST(HostFunctions, MustNotCallTheRuntime) {
  cudaStream_t stream = nullptr;
  OK(cudaStreamCreate(&stream));
  cudaError_t result = cudaSuccess;
  OK(cudaLaunchHostFunc(
      stream, [](void* user) { *static_cast<cudaError_t*>(user) = cudaDeviceSynchronize(); },
      &result));
  OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(result, cudaErrorNotPermitted);
  OK(cudaStreamDestroy(stream));
}

extern "C" cudaError_t cudaGraphAddMemAllocNode();
extern "C" cudaError_t cudaMallocArray();

TEST(MissingFunctions, SaySo) {
  EXPECT_EQ(cudaGraphAddMemAllocNode(), cudaErrorNotSupported);
  EXPECT_EQ(cudaMallocArray(), cudaErrorNotSupported);
  cudaGetLastError();
}

void a_kernel() {}

TEST(Kernels, CannotBeLaunched) {
  EXPECT_EQ(cudaLaunchKernel(a_kernel, dim3(1), dim3(1), nullptr), cudaErrorNoKernelImageForDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNoKernelImageForDevice);
  cudaFuncAttributes attributes{};
  OK(cudaFuncGetAttributes(&attributes, a_kernel));
  EXPECT_EQ(attributes.maxThreadsPerBlock, 1024);
  int blocks = 0;
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, a_kernel, 256, 0));
  EXPECT_EQ(blocks, 8);
  EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, a_kernel, 2000, 0),
            cudaErrorInvalidValue);
}

TEST(Fork, LeavesTheChildWithoutDevices) {
  int count = 0;
  OK(cudaGetDeviceCount(&count));
  const pid_t child = fork();
  if (child == 0) {
    void* memory = nullptr;
    const bool is_refused = cudaMalloc(&memory, 8) == cudaErrorInitializationError &&
                            cudaGetDeviceCount(&count) == cudaErrorInitializationError;
    _exit(is_refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  void* memory = nullptr;
  OK(cudaMalloc(&memory, 8));  // the parent goes on
  OK(cudaFree(memory));
}

TEST(Handles, OfMemoryAreOpenedByAnotherProcess) {
  int pipe_ends[2] = {};
  ASSERT_EQ(pipe(pipe_ends), 0);
  const std::string command = "exec '" + std::string(std::getenv("PLEXUS_TEST_EXAMPLE_DIR")) +
                              "/cudart_opens_handle' " + std::to_string(pipe_ends[0]);
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(9);
  }
  int* memory = nullptr;
  OK(cudaMalloc(&memory, 4000));
  OK(cudaMemset(memory, 0, 4000));
  cudaIpcMemHandle_t handle{};
  OK(cudaIpcGetMemHandle(&handle, memory));
  ASSERT_EQ(write(pipe_ends[1], &handle, sizeof(handle)), static_cast<ssize_t>(sizeof(handle)));
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory[999], 4711);  // what the child wrote
  OK(cudaFree(memory));
  for (const int end : pipe_ends) {
    close(end);
  }
  void* opened = nullptr;
  handle = {};
  EXPECT_EQ(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess),
            cudaErrorInvalidResourceHandle);
}

}  // namespace
