// SPDX-License-Identifier: Apache-2.0
// CUDA's driver interface (libcuda.so.1) as programs use it that load it, beside the runtime whose
// objects it names.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

#define OK(call) ASSERT_EQ(call, CUDA_SUCCESS) << #call

/// A function as those get it that ask for it by name.
template <class F>
F find(const char* name, int version = CUDA_VERSION) {
  void* function = nullptr;
  EXPECT_EQ(cuGetProcAddress_v2(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, nullptr),
            CUDA_SUCCESS)
      << name;
  return reinterpret_cast<F>(function);
}

TEST(Driver, StartsAndCountsTheRuntimesDevices) {
  OK(cuInit(0));
  EXPECT_EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
  int version = 0;
  OK(cuDriverGetVersion(&version));
  EXPECT_EQ(version, CUDA_VERSION);
  int count = 0;
  OK(cuDeviceGetCount(&count));
  EXPECT_EQ(count, 8);  // PLEXUS_CUDART_DEVICES of this test
  CUdevice device = -1;
  OK(cuDeviceGet(&device, 3));
  EXPECT_EQ(cuDeviceGet(&device, 8), CUDA_ERROR_INVALID_DEVICE);
  char name[64] = {};
  OK(cuDeviceGetName(name, sizeof(name), device));
  EXPECT_STREQ(name, "Plexus virtual device over host memory");
  size_t bytes = 0;
  OK(cuDeviceTotalMem(&bytes, device));
  EXPECT_EQ(bytes, size_t{64} << 20);
  int value = 0;
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
  EXPECT_EQ(value, 9);
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device));
  EXPECT_EQ(value, 0);
}

TEST(Driver, HasTheRuntimesUuids) {
  cudaDeviceProp properties{};
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 2), cudaSuccess);
  CUuuid uuid{};
  OK(cuDeviceGetUuid(&uuid, 2));
  EXPECT_EQ(std::string(uuid.bytes, sizeof(uuid.bytes)),
            std::string(properties.uuid.bytes, sizeof(properties.uuid.bytes)));
}

TEST(Driver, AContextIsTheRuntimesCurrentDevice) {
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  OK(cuDevicePrimaryCtxRetain(&first, 1));
  OK(cuDevicePrimaryCtxRetain(&second, 2));
  EXPECT_NE(first, second);
  OK(cuCtxSetCurrent(first));
  int device = -1;
  ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 1);
  ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
  CUcontext current = nullptr;
  OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, second);
  OK(cuCtxPushCurrent(first));
  OK(cuCtxGetDevice(&device));
  EXPECT_EQ(device, 1);
  OK(cuCtxPopCurrent(&current));
  EXPECT_EQ(current, first);
  OK(cuCtxGetDevice(&device));
  EXPECT_EQ(device, 2);
  EXPECT_EQ(cuCtxPopCurrent(&current), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxSetCurrent(reinterpret_cast<CUcontext>(&device)), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuDevicePrimaryCtxRelease(1));
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST(Driver, MemoryIsTheRuntimes) {
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, 1000));
  cudaPointerAttributes facts{};
  ASSERT_EQ(cudaPointerGetAttributes(&facts, reinterpret_cast<void*>(memory)), cudaSuccess);
  EXPECT_EQ(facts.type, cudaMemoryTypeDevice);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  OK(cuMemGetAddressRange(&base, &bytes, memory + 10));
  EXPECT_EQ(base, memory);
  EXPECT_EQ(bytes, 1000U);
  EXPECT_EQ(cuMemGetAddressRange(&base, &bytes, 4096), CUDA_ERROR_NOT_FOUND);
  unsigned type = 0;
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  int ordinal = -1;
  size_t range = 0;
  CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* answers[] = {&ordinal, &range};
  OK(cuPointerGetAttributes(2, asked, answers, memory));
  EXPECT_EQ(ordinal, 0);
  EXPECT_EQ(range, 1000U);
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  reinterpret_cast<uintptr_t>(&type)),
            CUDA_ERROR_INVALID_VALUE);  // as CUDA says of memory that it does not know
  OK(cuMemFree(memory));
  EXPECT_EQ(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAlloc(&memory, size_t{1} << 40), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(Driver, CopiesAndFills) {
  constexpr size_t kCount = 1000;
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  OK(cuMemAlloc(&first, kCount * sizeof(unsigned)));
  OK(cuMemAlloc(&second, kCount * sizeof(unsigned)));
  OK(cuMemsetD32(first, 0x01020304, kCount));
  OK(cuMemcpyDtoD(second, first, kCount * sizeof(unsigned)));
  std::vector<unsigned> got(kCount);
  OK(cuMemcpyDtoH(got.data(), second, kCount * sizeof(unsigned)));
  EXPECT_EQ(got, std::vector<unsigned>(kCount, 0x01020304));
  OK(cuMemsetD8(second, 7, kCount * sizeof(unsigned)));
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuCtxSynchronize());
  OK(cuMemcpyDtoHAsync(got.data(), second, kCount * sizeof(unsigned), stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(got, std::vector<unsigned>(kCount, 0x07070707));
  OK(cuStreamDestroy(stream));
  OK(cuMemFree(first));
  OK(cuMemFree(second));
}

TEST(Driver, EventsOrderStreams) {
  CUstream stream = nullptr;
  CUevent event = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
  int called = 0;
  OK(cuLaunchHostFunc(
      stream, [](void* user) { ++*static_cast<int*>(user); }, &called));
  OK(cuEventRecord(event, stream));
  OK(cuEventSynchronize(event));
  EXPECT_EQ(called, 1);
  OK(cuEventQuery(event));
  CUcontext context = nullptr;
  OK(cuStreamGetCtx(stream, &context));
  CUcontext current = nullptr;
  OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(context, current);
  OK(cuEventDestroy(event));
  OK(cuStreamDestroy(stream));
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
}

TEST(Driver, NamesItsErrors) {
  const char* text = nullptr;
  OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
  OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(998), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
}

TEST(Driver, IsFoundByName) {
  using Allocate = CUresult (*)(CUdeviceptr*, size_t);
  CUdeviceptr memory = 0;
  OK(find<Allocate>("cuMemAlloc")(&memory, 8));  // the newest form
  OK(cuMemFree(memory));
  using Create = CUresult (*)(CUcontext*, unsigned, CUdevice);
  CUcontext context = nullptr;
  OK(find<Create>("cuCtxCreate", 11000)(&context, 0, 0));
  OK(cuCtxDestroy(context));
  void* function = &context;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  OK(cuGetProcAddress_v2("cuNoSuchFunction", &function, CUDA_VERSION, 0, &status));
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(cuGetProcAddress_v2("cuNoSuchFunction", &function, CUDA_VERSION, 0, nullptr),
            CUDA_ERROR_NOT_FOUND);
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  EXPECT_NE(dlsym(library, "cuCtxDestroy"), nullptr);  // of programs that know the first forms
}

TEST(Driver, IsWhatTheRuntimeTellsOf) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuDeviceGetCount", &function, 12000,
                                             cudaEnableDefault, &status),
            cudaSuccess);
  EXPECT_EQ(status, cudaDriverEntryPointSuccess);
  EXPECT_EQ(function, reinterpret_cast<void*>(&cuDeviceGetCount));
  ASSERT_EQ(cudaGetDriverEntryPoint("cuNoSuchFunction", &function, cudaEnableDefault, &status),
            cudaSuccess);
  EXPECT_EQ(status, cudaDriverEntryPointSymbolNotFound);
}

TEST(Driver, SaysWhatItDoesNotHave) {
  using Load = CUresult (*)(void**, const char*);
  void* module = nullptr;
  EXPECT_EQ(find<Load>("cuModuleLoad")(&module, "kernels.cubin"), CUDA_ERROR_NOT_SUPPORTED);
  using Create = CUresult (*)(void*, size_t, void*, unsigned long long);
  EXPECT_EQ(find<Create>("cuMemCreate")(&module, 1, nullptr, 0), CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
