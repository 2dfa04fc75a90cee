// SPDX-License-Identifier: Apache-2.0
// Launches the device executor. The only CUDA type is the stream's, so that callers need no CUDA
// header; errors are cudaError_t numbers (0: success), which core/device converts to sentences.
// Threads: any; all calls concern the calling thread's current device.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_work.hpp"

struct CUstream_st;  // cudaStream_t points to it

namespace plexus {

inline constexpr uint32_t kDeviceThreadsMax = 256;

/// Number of blocks of `threads` threads (a multiple of 32, at most kDeviceThreadsMax) that are
/// resident on the current device at the same time. Larger launches are refused, because blocks
/// wait for each other. On failure returns 0 and stores the reason in `error`.
uint32_t device_blocks_max(uint32_t threads, int* error) noexcept;

/// Starts one cooperative launch that runs blocks[0, count) on `stream`. All ranks and channels of
/// this process that work together on this device belong in the same launch. `blocks` and the
/// works of their queues must be readable by the host, now, and by the device, and unchanged until
/// the launch has ended. Does not wait.
int launch_blocks(const DeviceBlock* blocks,
                  uint32_t count,
                  uint32_t threads,
                  CUstream_st* stream) noexcept;

}  // namespace plexus
