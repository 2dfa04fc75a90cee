// SPDX-License-Identifier: Apache-2.0
// Without a GPU the tests are reported as skipped: exit code 77 and the reason.
#include <cstdio>
#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess || devices == 0) {
    std::printf("SKIPPED: no usable GPU here (%s); nothing of kernels/cuda has run.\n",
                status == cudaSuccess ? "no device" : cudaGetErrorString(status));
    constexpr int kSkipped = 77;
    return kSkipped;
  }
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) == cudaSuccess) {
    std::printf("GPU: %s, %d multiprocessors, compute capability %d.%d\n", properties.name,
                properties.multiProcessorCount, properties.major, properties.minor);
  }
  return RUN_ALL_TESTS();
}
