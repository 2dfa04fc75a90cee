/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA runtime interface with what C++ adds to it.
 */
#ifndef PLEXUS_CUDA_RUNTIME_H_
#define PLEXUS_CUDA_RUNTIME_H_

/* Programs use what CUDA's header includes. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_runtime_api.h"
#include "host_defines.h"
#include "vector_functions.h"

#ifdef __cplusplus

template <class T>
cudaError_t cudaMalloc(T** memory, size_t bytes) {
  return ::cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
template <class T>
cudaError_t cudaMallocPitch(T** memory, size_t* pitch, size_t width, size_t height) {
  return ::cudaMallocPitch(reinterpret_cast<void**>(memory), pitch, width, height);
}
template <class T>
cudaError_t cudaMallocManaged(T** memory, size_t bytes, unsigned int flags = cudaMemAttachGlobal) {
  return ::cudaMallocManaged(reinterpret_cast<void**>(memory), bytes, flags);
}
template <class T>
cudaError_t cudaHostAlloc(T** memory, size_t bytes, unsigned int flags) {
  return ::cudaHostAlloc(reinterpret_cast<void**>(memory), bytes, flags);
}
template <class T>
cudaError_t cudaMallocHost(T** memory, size_t bytes, unsigned int flags = cudaHostAllocDefault) {
  return ::cudaHostAlloc(reinterpret_cast<void**>(memory), bytes, flags);
}
template <class T>
cudaError_t cudaHostGetDevicePointer(T** device, void* host, unsigned int flags) {
  return ::cudaHostGetDevicePointer(reinterpret_cast<void**>(device), host, flags);
}
template <class T>
cudaError_t cudaMallocAsync(T** memory, size_t bytes, cudaStream_t stream) {
  return ::cudaMallocAsync(reinterpret_cast<void**>(memory), bytes, stream);
}
template <class T>
cudaError_t cudaMallocFromPoolAsync(T** memory,
                                    size_t bytes,
                                    cudaMemPool_t pool,
                                    cudaStream_t stream) {
  return ::cudaMallocFromPoolAsync(reinterpret_cast<void**>(memory), bytes, pool, stream);
}
template <class T>
cudaError_t cudaMemcpyToSymbol(const T& symbol,
                               const void* from,
                               size_t bytes,
                               size_t offset = 0,
                               cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return ::cudaMemcpyToSymbol(static_cast<const void*>(&symbol), from, bytes, offset, kind);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to,
                                 const T& symbol,
                                 size_t bytes,
                                 size_t offset = 0,
                                 cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  return ::cudaMemcpyFromSymbol(to, static_cast<const void*>(&symbol), bytes, offset, kind);
}

inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned int flags) {
  return ::cudaEventCreateWithFlags(event, flags);
}
/* As before CUDA 12. */
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec,
                                        cudaGraph_t graph,
                                        cudaGraphNode_t* /*node*/,
                                        char* /*log*/,
                                        size_t /*size*/) {
  return ::cudaGraphInstantiate(exec, graph, 0ULL);
}

template <class T>
cudaError_t cudaLaunchKernel(T* function,
                             dim3 grid,
                             dim3 block,
                             void** arguments,
                             size_t bytes = 0,
                             cudaStream_t stream = 0) {
  return ::cudaLaunchKernel(reinterpret_cast<const void*>(function), grid, block, arguments, bytes,
                            stream);
}
template <class T>
cudaError_t cudaLaunchCooperativeKernel(T* function,
                                        dim3 grid,
                                        dim3 block,
                                        void** arguments,
                                        size_t bytes = 0,
                                        cudaStream_t stream = 0) {
  return ::cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(function), grid, block,
                                       arguments, bytes, stream);
}
template <class T>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, T* function) {
  return ::cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(function));
}
template <class T>
cudaError_t cudaFuncSetAttribute(T* function, cudaFuncAttribute attribute, int value) {
  return ::cudaFuncSetAttribute(reinterpret_cast<const void*>(function), attribute, value);
}
template <class T>
cudaError_t cudaFuncSetCacheConfig(T* function, cudaFuncCache config) {
  return ::cudaFuncSetCacheConfig(reinterpret_cast<const void*>(function), config);
}
template <class T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                          T function,
                                                          int threads,
                                                          size_t bytes) {
  return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, reinterpret_cast<const void*>(function), threads, bytes);
}
template <class T>
cudaError_t cudaOccupancyMaxPotentialBlockSize(
    int* grid, int* block, T function, size_t bytes = 0, int limit = 0) {
  cudaFuncAttributes attributes;
  const cudaError_t result = cudaFuncGetAttributes(&attributes, function);
  const int most = attributes.maxThreadsPerBlock;
  *grid = 1;
  *block = limit > 0 && limit < most ? limit : most;
  return (void)bytes, result;
}

#endif
#endif
