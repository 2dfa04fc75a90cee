// SPDX-License-Identifier: Apache-2.0
// What differs between CUDA 12 (PLEXUS_CUDART_MAJOR=12) and 13: cudaDeviceProp and the arguments of
// some functions.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "core/os/host.hpp"
#include "integrations/cudart/call.hpp"
#include "integrations/cudart/devices.hpp"
#include "integrations/cudart/runtime.hpp"

namespace plexus::cudart {
namespace {

#if PLEXUS_CUDART_MAJOR == 12
constexpr int kVersion = 12090;

// NOLINTBEGIN(readability-magic-numbers,readability-identifier-naming): a layout of CUDA's
/// cudaDeviceProp of CUDA 12.
struct Properties {
  char name[256];
  cudaUUID_t uuid;
  char luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
  size_t totalConstMem;
  int major, minor;
  size_t textureAlignment, texturePitchAlignment;
  int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory;
  int computeMode, textures[40];
  size_t surfaceAlignment;
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver;
  int asyncEngineCount, unifiedAddressing, memoryClockRate, memoryBusWidth, l2CacheSize;
  int persistingL2CacheMaxSize, maxThreadsPerMultiProcessor, streamPrioritiesSupported;
  int globalL1CacheSupported, localL1CacheSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID;
  int hostNativeAtomicSupported, singleToDoublePrecisionPerfRatio, pageableMemoryAccess;
  int concurrentManagedAccess, computePreemptionSupported, canUseHostPointerForRegisteredMem;
  int cooperativeLaunch, cooperativeMultiDeviceLaunch;
  size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost;
  int maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
  size_t reservedSharedMemPerBlock;
  int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported;
  int timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;
  unsigned gpuDirectRDMAFlushWritesOptions;
  int gpuDirectRDMAWritesOrdering;
  unsigned memoryPoolSupportedHandleTypes;
  int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch;
  int unifiedFunctionPointers, reserved[63];
};
static_assert(sizeof(Properties) == 1032);
// NOLINTEND(readability-magic-numbers,readability-identifier-naming)
#else
constexpr int kVersion = 13000;
using Properties = cudaDeviceProp;
#endif

void fill_limits(Properties& all) {
  all.sharedMemPerBlock = kSharedBytes;
  all.sharedMemPerBlockOptin = kSharedBytesMost;
  all.sharedMemPerMultiprocessor = kSharedBytesMost;
  all.regsPerBlock = kRegisters;
  all.regsPerMultiprocessor = kRegisters;
  all.warpSize = kWarp;
  all.memPitch = kPitchMost;
  all.maxThreadsPerBlock = kThreadsPerBlock;
  all.maxThreadsDim[0] = kThreadsPerBlock;
  all.maxThreadsDim[1] = kThreadsPerBlock;
  all.maxThreadsDim[2] = kBlockDepth;
  all.maxGridSize[0] = kGridWidth;
  all.maxGridSize[1] = kGridHeight;
  all.maxGridSize[2] = kGridHeight;
  all.maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
  all.maxBlocksPerMultiProcessor = kBlocksPerMultiprocessor;
  all.totalConstMem = kConstantBytes;
  all.textureAlignment = kAlignment;
  all.memoryBusWidth = kBusBits;
  all.l2CacheSize = kCacheBytes;
}

void fill_abilities(Properties& all) {
  all.canMapHostMemory = 1;
  all.concurrentKernels = 1;
  all.asyncEngineCount = 2;
  all.unifiedAddressing = 1;
  all.streamPrioritiesSupported = 1;
  all.managedMemory = 1;
  all.hostNativeAtomicSupported = 1;
  all.pageableMemoryAccess = 1;
  all.concurrentManagedAccess = 1;
  all.canUseHostPointerForRegisteredMem = 1;
  all.pageableMemoryAccessUsesHostPageTables = 1;
  all.directManagedMemAccessFromHost = 1;
  all.hostRegisterSupported = 1;
  all.memoryPoolsSupported = 1;
}

cudaError_t describe(void* properties, int device) {
  PLEXUS_CUDART_TRY(check_pointer(properties, "the address of the properties"));
  PLEXUS_CUDART_TRY(check_device(device));
  Properties all{};
  std::snprintf(all.name, sizeof(all.name), "Plexus virtual device over host memory");
  all.uuid = uuid_of(device);
  all.totalGlobalMem = Runtime::instance().memory.total_bytes();
  all.major = kMajor;
  all.minor = kMinor;
  all.multiProcessorCount = std::max(1, cores_available());
  const PciPlace place = pci_place(device);
  all.pciDomainID = place.domain;
  all.pciBusID = place.bus;
  fill_limits(all);
  fill_abilities(all);
  std::memcpy(properties, &all, sizeof(all));
  return cudaSuccess;
}

cudaError_t get_version(int* version) {
  PLEXUS_CUDART_TRY(check_pointer(version, "the address of the version"));
  *version = kVersion;
  return cudaSuccess;
}

cudaError_t check_advice(const void* memory, cudaStream_t stream) {
  PLEXUS_CUDART_TRY(check_pointer(memory, "the memory"));
  return Runtime::instance().streams.check(stream);
}

}  // namespace
}  // namespace plexus::cudart

using namespace plexus::cudart;  // NOLINT(google-build-using-namespace): as all of this file

PLEXUS_CUDART cudaError_t cudaRuntimeGetVersion(int* version) {
  return call("cudaRuntimeGetVersion", [&] { return get_version(version); });
}
PLEXUS_CUDART cudaError_t cudaDriverGetVersion(int* version) {
  return call("cudaDriverGetVersion", [&] { return get_version(version); });
}

/// The graph under way is not shown: what is asked for beyond status and number is empty.
static cudaError_t describe_capture_without_graph(cudaStream_t stream,
                                                  cudaStreamCaptureStatus* status,
                                                  unsigned long long* id,
                                                  cudaGraph_t* graph,
                                                  size_t* count) {
  if (graph != nullptr) {
    *graph = nullptr;
  }
  if (count != nullptr) {
    *count = 0;
  }
  return describe_capture(stream, status, id);
}

#if PLEXUS_CUDART_MAJOR == 12
PLEXUS_CUDART cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                                   cudaStreamCaptureStatus* status,
                                                   unsigned long long* id) {
  return call("cudaStreamGetCaptureInfo", [&] { return describe_capture(stream, status, id); });
}
PLEXUS_CUDART cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream,
                                                      cudaStreamCaptureStatus* status,
                                                      unsigned long long* id,
                                                      cudaGraph_t* graph,
                                                      const cudaGraphNode_t** /*nodes*/,
                                                      size_t* count) {
  return call("cudaStreamGetCaptureInfo",
              [&] { return describe_capture_without_graph(stream, status, id, graph, count); });
}
PLEXUS_CUDART cudaError_t cudaGraphAddDependencies(cudaGraph_t graph,
                                                   const cudaGraphNode_t* from,
                                                   const cudaGraphNode_t* to,
                                                   size_t count) {
  return call("cudaGraphAddDependencies", [&] { return add_dependencies(graph, from, to, count); });
}
PLEXUS_CUDART cudaError_t cudaGetDeviceProperties_v2(void* properties, int device) {
  return call("cudaGetDeviceProperties", [&] { return describe(properties, device); });
}
PLEXUS_CUDART cudaError_t cudaMemAdvise(const void* memory, size_t, cudaMemoryAdvise, int) {
  return call("cudaMemAdvise", [&] { return check_advice(memory, nullptr); });
}
PLEXUS_CUDART cudaError_t cudaMemPrefetchAsync(const void* memory,
                                               size_t,
                                               int,
                                               cudaStream_t stream) {
  return call("cudaMemPrefetchAsync", [&] { return check_advice(memory, stream); });
}
#else
// NOLINTNEXTLINE(readability-function-size): the number of parameters is CUDA's
PLEXUS_CUDART cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                                   cudaStreamCaptureStatus* status,
                                                   unsigned long long* id,
                                                   cudaGraph_t* graph,
                                                   const cudaGraphNode_t** /*nodes*/,
                                                   const cudaGraphEdgeData** /*edges*/,
                                                   size_t* count) {
  return call("cudaStreamGetCaptureInfo",
              [&] { return describe_capture_without_graph(stream, status, id, graph, count); });
}
PLEXUS_CUDART cudaError_t cudaGraphAddDependencies(cudaGraph_t graph,
                                                   const cudaGraphNode_t* from,
                                                   const cudaGraphNode_t* to,
                                                   const cudaGraphEdgeData* /*edges*/,
                                                   size_t count) {
  return call("cudaGraphAddDependencies", [&] { return add_dependencies(graph, from, to, count); });
}
PLEXUS_CUDART cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call("cudaGetDeviceProperties", [&] { return describe(properties, device); });
}
PLEXUS_CUDART cudaError_t cudaMemAdvise(const void* memory,
                                        size_t /*bytes*/,
                                        cudaMemoryAdvise /*advice*/,
                                        cudaMemLocation) {
  return call("cudaMemAdvise", [&] { return check_advice(memory, nullptr); });
}
PLEXUS_CUDART cudaError_t cudaMemPrefetchAsync(const void* memory,
                                               size_t /*bytes*/,
                                               cudaMemLocation,
                                               unsigned /*flags*/,
                                               cudaStream_t stream) {
  return call("cudaMemPrefetchAsync", [&] { return check_advice(memory, stream); });
}
#endif
