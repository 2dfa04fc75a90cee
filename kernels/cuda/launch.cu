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
  __device__ uint32_t lanes() const { return warpSize; }
  __device__ uint32_t lane() const { return threadIdx.x % warpSize; }
  __device__ uint32_t take(uint32_t* counter, uint32_t amount) const {
    return lane() == 0 ? atomicAdd_block(counter, amount) : 0;
  }
  __device__ uint32_t share(uint32_t value) const { return __shfl_sync(~0U, value, 0); }
};

__device__ __noinline__ void run_task(const DeviceBlock& task) {
  // Bytes, because shared memory runs no constructors; all of it is written before it is read.
  __shared__ alignas(BlockState) std::byte memory[sizeof(BlockState)];
  run_block(ThreadBlock(), *reinterpret_cast<BlockState*>(memory), task);
}

__global__ void __launch_bounds__(kDeviceThreadsMax, kBlocksPerProcessor)
    run_blocks(const DeviceBlock* blocks) {
  run_task(blocks[blockIdx.x]);
}

/// The tables of a launch of few blocks, as parameters: two loads from pinned memory, 1.1 us each,
/// that a short call need not wait for. A KiB of parameters costs 0.3 us.
struct Few {
  static constexpr uint32_t kBlocksMax = 8;
  DeviceBlock blocks[kBlocksMax];
  DeviceWork works[kBlocksMax];
};

__global__ void __launch_bounds__(kDeviceThreadsMax, kBlocksPerProcessor)
    run_few_blocks(const __grid_constant__ Few tables) {
  DeviceBlock task = tables.blocks[blockIdx.x];
  task.queue.works = &tables.works[blockIdx.x];
  run_task(task);
}

bool are_few(const DeviceBlock* blocks, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    if (count > Few::kBlocksMax || blocks[i].in_turn != 0 || blocks[i].queue.work_count != 1) {
      return false;
    }
  }
  return true;
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
  const void* kernel = reinterpret_cast<const void*>(run_blocks);
  void* arguments[] = {static_cast<void*>(&blocks)};
  Few few;
  if (are_few(blocks, count)) {
    for (uint32_t i = 0; i < count; ++i) {
      few.blocks[i] = blocks[i];
      few.works[i] = *blocks[i].queue.works;
    }
    kernel = reinterpret_cast<const void*>(run_few_blocks);
    arguments[0] = &few;
  }
  return static_cast<int>(
      cudaLaunchCooperativeKernel(kernel, dim3(count), dim3(threads), arguments, 0, stream));
}

}  // namespace plexus
