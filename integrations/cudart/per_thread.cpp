// SPDX-License-Identifier: Apache-2.0
// The names that programs use which were compiled with CUDA_API_PER_THREAD_DEFAULT_STREAM: the same
// functions, NULL being the thread's default stream.
#include "integrations/cudart/call.hpp"
#include "integrations/cudart/include/cuda_runtime_api.h"

namespace {

cudaStream_t own(cudaStream_t stream) { return stream == nullptr ? cudaStreamPerThread : stream; }

}  // namespace

// NOLINTBEGIN(readability-function-size): the numbers of parameters are CUDA's
PLEXUS_CUDART cudaError_t cudaMemcpyAsync_ptsz(
    void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, kind, own(stream));
}
PLEXUS_CUDART cudaError_t cudaMemsetAsync_ptsz(void* memory,
                                               int value,
                                               size_t bytes,
                                               cudaStream_t stream) {
  return cudaMemsetAsync(memory, value, bytes, own(stream));
}
PLEXUS_CUDART cudaError_t cudaMemcpy2DAsync_ptsz(void* to,
                                                 size_t to_pitch,
                                                 const void* from,
                                                 size_t from_pitch,
                                                 size_t width,
                                                 size_t height,
                                                 cudaMemcpyKind kind,
                                                 cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, own(stream));
}
PLEXUS_CUDART cudaError_t cudaMemset2DAsync_ptsz(
    void* memory, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
  return cudaMemset2DAsync(memory, pitch, value, width, height, own(stream));
}
PLEXUS_CUDART cudaError_t cudaMallocAsync_ptsz(void** memory, size_t bytes, cudaStream_t stream) {
  return cudaMallocAsync(memory, bytes, own(stream));
}
PLEXUS_CUDART cudaError_t cudaFreeAsync_ptsz(void* memory, cudaStream_t stream) {
  return cudaFreeAsync(memory, own(stream));
}
PLEXUS_CUDART cudaError_t cudaEventRecord_ptsz(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecord(event, own(stream));
}
PLEXUS_CUDART cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t exec, cudaStream_t stream) {
  return cudaGraphLaunch(exec, own(stream));
}
PLEXUS_CUDART cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream) {
  return cudaStreamSynchronize(own(stream));
}
PLEXUS_CUDART cudaError_t cudaStreamQuery_ptsz(cudaStream_t stream) {
  return cudaStreamQuery(own(stream));
}
PLEXUS_CUDART cudaError_t cudaStreamWaitEvent_ptsz(cudaStream_t stream,
                                                   cudaEvent_t event,
                                                   unsigned flags) {
  return cudaStreamWaitEvent(own(stream), event, flags);
}
PLEXUS_CUDART cudaError_t cudaLaunchHostFunc_ptsz(cudaStream_t stream,
                                                  cudaHostFn_t function,
                                                  void* user) {
  return cudaLaunchHostFunc(own(stream), function, user);
}
PLEXUS_CUDART cudaError_t cudaStreamGetFlags_ptsz(cudaStream_t stream, unsigned* flags) {
  return cudaStreamGetFlags(own(stream), flags);
}
PLEXUS_CUDART cudaError_t cudaStreamGetPriority_ptsz(cudaStream_t stream, int* priority) {
  return cudaStreamGetPriority(own(stream), priority);
}
PLEXUS_CUDART cudaError_t cudaStreamIsCapturing_ptsz(cudaStream_t stream,
                                                     cudaStreamCaptureStatus* status) {
  return cudaStreamIsCapturing(own(stream), status);
}
PLEXUS_CUDART cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t stream,
                                                      cudaStreamCaptureMode mode) {
  return cudaStreamBeginCapture(own(stream), mode);
}
PLEXUS_CUDART cudaError_t cudaStreamEndCapture_ptsz(cudaStream_t stream, cudaGraph_t* graph) {
  return cudaStreamEndCapture(own(stream), graph);
}
PLEXUS_CUDART cudaError_t cudaStreamAddCallback_ptsz(cudaStream_t stream,
                                                     cudaStreamCallback_t callback,
                                                     void* user,
                                                     unsigned flags) {
  return cudaStreamAddCallback(own(stream), callback, user, flags);
}
PLEXUS_CUDART cudaError_t cudaLaunchKernel_ptsz(const void* function,
                                                dim3 grid,
                                                dim3 block,
                                                void** arguments,
                                                size_t shared_bytes,
                                                cudaStream_t stream) {
  return cudaLaunchKernel(function, grid, block, arguments, shared_bytes, own(stream));
}
// NOLINTEND(readability-function-size)
