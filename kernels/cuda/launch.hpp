// SPDX-License-Identifier: Apache-2.0
// Launching the device executor. No CUDA type but the stream's, so that no caller needs a CUDA
// header; errors are the numbers of cudaError_t (0: success), which core/device turns into words.
// Threads: any; all calls concern the calling thread's current device.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_work.hpp"

struct CUstream_st;  // cudaStream_t points to it

namespace plexus {

inline constexpr uint32_t kDeviceThreadsMax = 512;

/// How many blocks of `threads` threads (a multiple of 32, at most kDeviceThreadsMax) the current
/// device holds at the same time. A launch of more is refused: its blocks wait for each other.
/// A failing call gives 0 and says why in `error`.
uint32_t device_blocks_max(uint32_t threads, int* error) noexcept;

/// Starts one cooperative launch that runs blocks[0, count) on `stream`: all ranks and channels of
/// this process that work together on this device belong into it. `blocks` lies in memory that the
/// device reads and stays unchanged until the launch has ended. Does not wait.
int launch_blocks(const DeviceBlock* blocks,
                  uint32_t count,
                  uint32_t threads,
                  CUstream_st* stream) noexcept;

}  // namespace plexus
