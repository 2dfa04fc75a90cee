// SPDX-License-Identifier: Apache-2.0
// Memory, copies, streams and events of the driver's interface.
#include <algorithm>
#include <span>
#include <vector>

#include "integrations/cudart/driver.hpp"

namespace plexus::cuda {
namespace {

/// Calls the runtime with the address of a pointer, and gives it to the user as a CUdeviceptr.
template <class Allocate>
CUresult allocate(CUdeviceptr* memory, const Allocate& body) {
  if (memory == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  void* made = nullptr;
  const CUresult result = result_of(body(&made));
  *memory = reinterpret_cast<uintptr_t>(made);
  return result;
}

CUresult copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return result_of(PLEXUS_RUNTIME(cudaMemcpy)(to, from, bytes, kind));
}
CUresult copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, CUstream stream) {
  return result_of(PLEXUS_RUNTIME(cudaMemcpyAsync)(to, from, bytes, kind, stream));
}

/// `count` elements with one value: bytes that are all the same, or a copy of the whole.
template <class T>
CUresult fill(CUdeviceptr memory, T value, size_t count, CUstream stream) {
  const std::span<const unsigned char> bytes(reinterpret_cast<const unsigned char*>(&value),
                                             sizeof(value));
  if (std::all_of(bytes.begin(), bytes.end(), [&](auto byte) { return byte == bytes.front(); })) {
    return result_of(
        PLEXUS_RUNTIME(cudaMemsetAsync)(pointer(memory), bytes.front(), count * sizeof(T), stream));
  }
  const std::vector<T> whole(count, value);
  return copy(pointer(memory), whole.data(), count * sizeof(T), cudaMemcpyHostToDevice, stream);
}

/// The value of one attribute; CUDA_ERROR_INVALID_VALUE where the memory, or CUDA, has none.
CUresult get_attribute(void* value, CUpointer_attribute attribute, const void* address) {
  cudaPointerAttributes facts{};
  void* base = nullptr;
  size_t bytes = 0;
  const CUresult result = result_of(PLEXUS_RUNTIME(cudaPointerGetAttributes)(&facts, address));
  if (result != CUDA_SUCCESS) {
    return result;
  }
  const bool is_known = PLEXUS_RUNTIME(plexusCudartFindMemory)(address, &base, &bytes) != 0;
  const bool is_host = facts.type == cudaMemoryTypeHost;
  if (!is_known && attribute != CU_POINTER_ATTRIBUTE_MAPPED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<void**>(value) = context_of_device(facts.device);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<void**>(value) = facts.devicePointer;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      *static_cast<void**>(value) = facts.hostPointer;
      return facts.hostPointer != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(value) = reinterpret_cast<uintptr_t>(base);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      *static_cast<unsigned*>(value) = 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned*>(value) = facts.type == cudaMemoryTypeManaged ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(value) = facts.device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<unsigned char*>(value) = facts.type == cudaMemoryTypeDevice ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<void**>(value) = base;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(value) = bytes;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<unsigned char*>(value) = is_known ? 1 : 0;
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace
}  // namespace plexus::cuda

using namespace plexus::cuda;  // NOLINT(google-build-using-namespace): as all of this file

// NOLINTBEGIN(readability-identifier-naming): CUDA's names

// ---- memory ----

PLEXUS_CUDA CUresult cuMemAlloc_v2(CUdeviceptr* memory, size_t bytes) {
  if (bytes == 0) {  // which the runtime's allows
    return CUDA_ERROR_INVALID_VALUE;
  }
  return allocate(memory, [&](void** made) { return PLEXUS_RUNTIME(cudaMalloc)(made, bytes); });
}
PLEXUS_CUDA CUresult cuMemAllocManaged(CUdeviceptr* memory, size_t bytes, unsigned flags) {
  return allocate(
      memory, [&](void** made) { return PLEXUS_RUNTIME(cudaMallocManaged)(made, bytes, flags); });
}
PLEXUS_CUDA CUresult cuMemFree_v2(CUdeviceptr memory) {
  return result_of(PLEXUS_RUNTIME(cudaFree)(pointer(memory)));
}
PLEXUS_CUDA CUresult cuMemAllocAsync(CUdeviceptr* memory, size_t bytes, CUstream stream) {
  return allocate(
      memory, [&](void** made) { return PLEXUS_RUNTIME(cudaMallocAsync)(made, bytes, stream); });
}
PLEXUS_CUDA CUresult cuMemFreeAsync(CUdeviceptr memory, CUstream stream) {
  return result_of(PLEXUS_RUNTIME(cudaFreeAsync)(pointer(memory), stream));
}
PLEXUS_CUDA CUresult cuMemAllocHost_v2(void** memory, size_t bytes) {
  return result_of(PLEXUS_RUNTIME(cudaMallocHost)(memory, bytes));
}
PLEXUS_CUDA CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  return result_of(PLEXUS_RUNTIME(cudaHostAlloc)(memory, bytes, flags));
}
PLEXUS_CUDA CUresult cuMemFreeHost(void* memory) {
  return result_of(PLEXUS_RUNTIME(cudaFreeHost)(memory));
}
PLEXUS_CUDA CUresult cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
  return result_of(PLEXUS_RUNTIME(cudaHostRegister)(memory, bytes, flags));
}
PLEXUS_CUDA CUresult cuMemHostUnregister(void* memory) {
  return result_of(PLEXUS_RUNTIME(cudaHostUnregister)(memory));
}
PLEXUS_CUDA CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* host, unsigned flags) {
  return allocate(device, [&](void** found) {
    return PLEXUS_RUNTIME(cudaHostGetDevicePointer)(found, host, flags);
  });
}
PLEXUS_CUDA CUresult cuMemHostGetFlags(unsigned* flags, void* host) {
  return result_of(PLEXUS_RUNTIME(cudaHostGetFlags)(flags, host));
}
PLEXUS_CUDA CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return result_of(PLEXUS_RUNTIME(cudaMemGetInfo)(free, total));
}
PLEXUS_CUDA CUresult cuMemGetAddressRange_v2(CUdeviceptr* base,
                                             size_t* bytes,
                                             CUdeviceptr address) {
  void* begin = nullptr;
  size_t size = 0;
  if (PLEXUS_RUNTIME(plexusCudartFindMemory)(pointer(address), &begin, &size) == 0) {
    return CUDA_ERROR_NOT_FOUND;
  }
  if (base != nullptr) {
    *base = reinterpret_cast<uintptr_t>(begin);
  }
  if (bytes != nullptr) {
    *bytes = size;
  }
  return CUDA_SUCCESS;
}
PLEXUS_CUDA CUresult cuPointerGetAttribute(void* value,
                                           CUpointer_attribute attribute,
                                           CUdeviceptr address) {
  return value == nullptr ? CUDA_ERROR_INVALID_VALUE
                          : get_attribute(value, attribute, pointer(address));
}
PLEXUS_CUDA CUresult cuPointerGetAttributes(unsigned count,
                                            CUpointer_attribute* attributes,
                                            void** values,
                                            CUdeviceptr address) {
  if (attributes == nullptr || values == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned i = 0; i < count; ++i) {  // as CUDA, what is unknown stays as it is
    static_cast<void>(get_attribute(values[i], attributes[i], pointer(address)));
  }
  return CUDA_SUCCESS;
}
/// Copies are complete on return already, as far as SYNC_MEMOPS asks.
PLEXUS_CUDA CUresult cuPointerSetAttribute(const void* value,
                                           CUpointer_attribute attribute,
                                           CUdeviceptr /*address*/) {
  return value != nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}
PLEXUS_CUDA CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr memory) {
  return result_of(PLEXUS_RUNTIME(cudaIpcGetMemHandle)(handle, pointer(memory)));
}
PLEXUS_CUDA CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* memory,
                                           CUipcMemHandle handle,
                                           unsigned flags) {
  return allocate(memory, [&](void** opened) {
    return PLEXUS_RUNTIME(cudaIpcOpenMemHandle)(opened, handle, flags);
  });
}
PLEXUS_CUDA CUresult cuIpcCloseMemHandle(CUdeviceptr memory) {
  return result_of(PLEXUS_RUNTIME(cudaIpcCloseMemHandle)(pointer(memory)));
}

// ---- copies ----

PLEXUS_CUDA CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy(pointer(to), pointer(from), bytes, cudaMemcpyDefault);
}
PLEXUS_CUDA CUresult cuMemcpyAsync(CUdeviceptr to,
                                   CUdeviceptr from,
                                   size_t bytes,
                                   CUstream stream) {
  return copy(pointer(to), pointer(from), bytes, cudaMemcpyDefault, stream);
}
PLEXUS_CUDA CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return copy(pointer(to), from, bytes, cudaMemcpyHostToDevice);
}
PLEXUS_CUDA CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return copy(to, pointer(from), bytes, cudaMemcpyDeviceToHost);
}
PLEXUS_CUDA CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy(pointer(to), pointer(from), bytes, cudaMemcpyDeviceToDevice);
}
PLEXUS_CUDA CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to,
                                          const void* from,
                                          size_t bytes,
                                          CUstream stream) {
  return copy(pointer(to), from, bytes, cudaMemcpyHostToDevice, stream);
}
PLEXUS_CUDA CUresult cuMemcpyDtoHAsync_v2(void* to,
                                          CUdeviceptr from,
                                          size_t bytes,
                                          CUstream stream) {
  return copy(to, pointer(from), bytes, cudaMemcpyDeviceToHost, stream);
}
PLEXUS_CUDA CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to,
                                          CUdeviceptr from,
                                          size_t bytes,
                                          CUstream stream) {
  return copy(pointer(to), pointer(from), bytes, cudaMemcpyDeviceToDevice, stream);
}
PLEXUS_CUDA CUresult cuMemsetD8_v2(CUdeviceptr memory, unsigned char value, size_t count) {
  return fill(memory, value, count, nullptr);
}
PLEXUS_CUDA CUresult cuMemsetD8Async(CUdeviceptr memory,
                                     unsigned char value,
                                     size_t count,
                                     CUstream stream) {
  return fill(memory, value, count, stream);
}
PLEXUS_CUDA CUresult cuMemsetD16_v2(CUdeviceptr memory, unsigned short value, size_t count) {
  return fill(memory, value, count, nullptr);
}
PLEXUS_CUDA CUresult cuMemsetD32_v2(CUdeviceptr memory, unsigned value, size_t count) {
  return fill(memory, value, count, nullptr);
}
PLEXUS_CUDA CUresult cuMemsetD32Async(CUdeviceptr memory,
                                      unsigned value,
                                      size_t count,
                                      CUstream stream) {
  return fill(memory, value, count, stream);
}

// ---- streams and events ----

PLEXUS_CUDA CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return result_of(PLEXUS_RUNTIME(cudaStreamCreateWithFlags)(stream, flags));
}
PLEXUS_CUDA CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return result_of(PLEXUS_RUNTIME(cudaStreamCreateWithPriority)(stream, flags, priority));
}
PLEXUS_CUDA CUresult cuStreamDestroy_v2(CUstream stream) {
  return result_of(PLEXUS_RUNTIME(cudaStreamDestroy)(stream));
}
PLEXUS_CUDA CUresult cuStreamSynchronize(CUstream stream) {
  return result_of(PLEXUS_RUNTIME(cudaStreamSynchronize)(stream));
}
PLEXUS_CUDA CUresult cuStreamQuery(CUstream stream) {
  return result_of(PLEXUS_RUNTIME(cudaStreamQuery)(stream));
}
PLEXUS_CUDA CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return result_of(PLEXUS_RUNTIME(cudaStreamWaitEvent)(stream, event, flags));
}
PLEXUS_CUDA CUresult cuStreamGetFlags(CUstream stream, unsigned* flags) {
  return result_of(PLEXUS_RUNTIME(cudaStreamGetFlags)(stream, flags));
}
PLEXUS_CUDA CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  return result_of(PLEXUS_RUNTIME(cudaStreamGetPriority)(stream, priority));
}
PLEXUS_CUDA CUresult cuStreamGetDevice(CUstream stream, CUdevice* device) {
  return result_of(PLEXUS_RUNTIME(cudaStreamGetDevice)(stream, device));
}
PLEXUS_CUDA CUresult cuStreamIsCapturing(CUstream stream, cudaStreamCaptureStatus* status) {
  return result_of(PLEXUS_RUNTIME(cudaStreamIsCapturing)(stream, status));
}
PLEXUS_CUDA CUresult cuStreamBeginCapture_v2(CUstream stream, cudaStreamCaptureMode mode) {
  return result_of(PLEXUS_RUNTIME(cudaStreamBeginCapture)(stream, mode));
}
PLEXUS_CUDA CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return result_of(PLEXUS_RUNTIME(cudaStreamEndCapture)(stream, graph));
}
PLEXUS_CUDA CUresult cuThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return result_of(PLEXUS_RUNTIME(cudaThreadExchangeStreamCaptureMode)(mode));
}
PLEXUS_CUDA CUresult cuGraphDestroy(CUgraph graph) {
  return result_of(PLEXUS_RUNTIME(cudaGraphDestroy)(graph));
}
PLEXUS_CUDA CUresult cuGraphInstantiateWithFlags(cudaGraphExec_t* exec,
                                                 CUgraph graph,
                                                 unsigned long long flags) {
  return result_of(PLEXUS_RUNTIME(cudaGraphInstantiateWithFlags)(exec, graph, flags));
}
PLEXUS_CUDA CUresult cuGraphLaunch(cudaGraphExec_t exec, CUstream stream) {
  return result_of(PLEXUS_RUNTIME(cudaGraphLaunch)(exec, stream));
}
PLEXUS_CUDA CUresult cuGraphExecDestroy(cudaGraphExec_t exec) {
  return result_of(PLEXUS_RUNTIME(cudaGraphExecDestroy)(exec));
}
PLEXUS_CUDA CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* user) {
  return result_of(PLEXUS_RUNTIME(cudaLaunchHostFunc)(stream, function, user));
}
PLEXUS_CUDA CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return result_of(PLEXUS_RUNTIME(cudaEventCreateWithFlags)(event, flags));
}
PLEXUS_CUDA CUresult cuEventRecord(CUevent event, CUstream stream) {
  return result_of(PLEXUS_RUNTIME(cudaEventRecord)(event, stream));
}
PLEXUS_CUDA CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return result_of(PLEXUS_RUNTIME(cudaEventRecordWithFlags)(event, stream, flags));
}
PLEXUS_CUDA CUresult cuEventQuery(CUevent event) {
  return result_of(PLEXUS_RUNTIME(cudaEventQuery)(event));
}
PLEXUS_CUDA CUresult cuEventSynchronize(CUevent event) {
  return result_of(PLEXUS_RUNTIME(cudaEventSynchronize)(event));
}
PLEXUS_CUDA CUresult cuEventDestroy_v2(CUevent event) {
  return result_of(PLEXUS_RUNTIME(cudaEventDestroy)(event));
}
PLEXUS_CUDA CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return result_of(PLEXUS_RUNTIME(cudaEventElapsedTime)(milliseconds, start, end));
}

// The names of the first forms, which programs look up, too.
#undef cuStreamDestroy
#undef cuEventDestroy
#undef cuEventElapsedTime
#undef cuMemAllocHost
PLEXUS_CUDA CUresult cuStreamDestroy(CUstream stream) { return cuStreamDestroy_v2(stream); }
PLEXUS_CUDA CUresult cuEventDestroy(CUevent event) { return cuEventDestroy_v2(event); }
PLEXUS_CUDA CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}
PLEXUS_CUDA CUresult cuMemAllocHost(void** memory, size_t bytes) {
  return cuMemAllocHost_v2(memory, bytes);
}
// NOLINTEND(readability-identifier-naming)
