// SPDX-License-Identifier: Apache-2.0
// The names that programs use which were compiled with CUDA_API_PER_THREAD_DEFAULT_STREAM: the same
// functions, NULL being the thread's default stream.
#include "integrations/cudart/call.hpp"
#include "integrations/cudart/include/cuda_runtime_api.h"

namespace {

cudaStream_t own(cudaStream_t stream) { return stream == nullptr ? cudaStreamPerThread : stream; }

}  // namespace

// NOLINTBEGIN(readability-function-size): the numbers of parameters are CUDA's
CUDART_EXPORT cudaError_t cudaMemcpyAsync_ptsz(
    void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, kind, own(stream));
}
CUDART_EXPORT cudaError_t cudaMemsetAsync_ptsz(void* memory,
                                               int value,
                                               size_t bytes,
                                               cudaStream_t stream) {
  return cudaMemsetAsync(memory, value, bytes, own(stream));
}
CUDART_EXPORT cudaError_t cudaMemcpy2DAsync_ptsz(void* to,
                                                 size_t to_pitch,
                                                 const void* from,
                                                 size_t from_pitch,
                                                 size_t width,
                                                 size_t height,
                                                 cudaMemcpyKind kind,
                                                 cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, own(stream));
}
CUDART_EXPORT cudaError_t cudaMemset2DAsync_ptsz(
    void* memory, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
  return cudaMemset2DAsync(memory, pitch, value, width, height, own(stream));
}
CUDART_EXPORT cudaError_t cudaMallocAsync_ptsz(void** memory, size_t bytes, cudaStream_t stream) {
  return cudaMallocAsync(memory, bytes, own(stream));
}
CUDART_EXPORT cudaError_t cudaFreeAsync_ptsz(void* memory, cudaStream_t stream) {
  return cudaFreeAsync(memory, own(stream));
}
CUDART_EXPORT cudaError_t cudaEventRecord_ptsz(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecord(event, own(stream));
}
CUDART_EXPORT cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t exec, cudaStream_t stream) {
  return cudaGraphLaunch(exec, own(stream));
}
CUDART_EXPORT cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream) {
  return cudaStreamSynchronize(own(stream));
}
CUDART_EXPORT cudaError_t cudaStreamQuery_ptsz(cudaStream_t stream) {
  return cudaStreamQuery(own(stream));
}
CUDART_EXPORT cudaError_t cudaStreamWaitEvent_ptsz(cudaStream_t stream,
                                                   cudaEvent_t event,
                                                   unsigned flags) {
  return cudaStreamWaitEvent(own(stream), event, flags);
}
CUDART_EXPORT cudaError_t cudaLaunchHostFunc_ptsz(cudaStream_t stream,
                                                  cudaHostFn_t function,
                                                  void* user) {
  return cudaLaunchHostFunc(own(stream), function, user);
}
CUDART_EXPORT cudaError_t cudaStreamGetFlags_ptsz(cudaStream_t stream, unsigned* flags) {
  return cudaStreamGetFlags(own(stream), flags);
}
CUDART_EXPORT cudaError_t cudaStreamGetPriority_ptsz(cudaStream_t stream, int* priority) {
  return cudaStreamGetPriority(own(stream), priority);
}
CUDART_EXPORT cudaError_t cudaStreamIsCapturing_ptsz(cudaStream_t stream,
                                                     cudaStreamCaptureStatus* status) {
  return cudaStreamIsCapturing(own(stream), status);
}
CUDART_EXPORT cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t stream,
                                                      cudaStreamCaptureMode mode) {
  return cudaStreamBeginCapture(own(stream), mode);
}
CUDART_EXPORT cudaError_t cudaStreamEndCapture_ptsz(cudaStream_t stream, cudaGraph_t* graph) {
  return cudaStreamEndCapture(own(stream), graph);
}
CUDART_EXPORT cudaError_t cudaStreamAddCallback_ptsz(cudaStream_t stream,
                                                     cudaStreamCallback_t callback,
                                                     void* user,
                                                     unsigned flags) {
  return cudaStreamAddCallback(own(stream), callback, user, flags);
}
CUDART_EXPORT cudaError_t cudaLaunchKernel_ptsz(const void* function,
                                                dim3 grid,
                                                dim3 block,
                                                void** arguments,
                                                size_t shared_bytes,
                                                cudaStream_t stream) {
  return cudaLaunchKernel(function, grid, block, arguments, shared_bytes, own(stream));
}
// NOLINTEND(readability-function-size)
