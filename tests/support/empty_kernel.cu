// SPDX-License-Identifier: Apache-2.0
// A cooperative kernel that does nothing: the minimum latency of a launch.
#include <cuda_runtime.h>

#include "tests/support/empty_kernel.hpp"

namespace plexus::test {
namespace {

__global__ void do_nothing() {}

}  // namespace

int launch_empty(uint32_t blocks, uint32_t threads, CUstream_st* stream) {
  return static_cast<int>(
      cudaLaunchCooperativeKernel(do_nothing, dim3(blocks), dim3(threads), nullptr, 0, stream));
}

}  // namespace plexus::test
