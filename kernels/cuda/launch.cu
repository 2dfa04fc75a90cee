// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "kernels/cuda/in_turn.hpp"
#include "kernels/cuda/launch.hpp"

namespace plexus {
namespace {

constexpr uint32_t kBlocksPerProcessor = 2;  // of 256 threads of 128 registers each

struct ThreadBlock {
  __device__ uint32_t thread() const { return threadIdx.x; }
  __device__ uint32_t threads() const { return blockDim.x; }
  __device__ void sync() const { __syncthreads(); }
  __device__ bool any(bool mine) const { return __syncthreads_or(mine ? 1 : 0) != 0; }
};

__global__ void __launch_bounds__(kDeviceThreadsMax, kBlocksPerProcessor)
    run_blocks(const DeviceBlock* blocks) {
  // Bytes, because shared memory runs no constructors; all of it is written before it is read.
  __shared__ alignas(BlockState) std::byte memory[sizeof(BlockState)];
  auto& state = *reinterpret_cast<BlockState*>(memory);
  const ThreadBlock block;
  run_block(block, state, blocks[blockIdx.x]);
}

}  // namespace

uint32_t device_blocks_max(uint32_t threads, int* error) noexcept {
  int device = 0;
  int processors = 0;
  int per_processor = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  }
  if (status == cudaSuccess) {
    status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, run_blocks,
                                                           static_cast<int>(threads), 0);
  }
  *error = static_cast<int>(status);
  return status == cudaSuccess ? static_cast<uint32_t>(processors * per_processor) : 0;
}

int launch_blocks(const DeviceBlock* blocks,
                  uint32_t count,
                  uint32_t threads,
                  CUstream_st* stream) noexcept {
  void* arguments[] = {static_cast<void*>(&blocks)};
  return static_cast<int>(
      cudaLaunchCooperativeKernel(run_blocks, dim3(count), dim3(threads), arguments, 0, stream));
}

}  // namespace plexus
