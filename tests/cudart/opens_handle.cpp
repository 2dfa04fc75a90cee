// SPDX-License-Identifier: Apache-2.0
// Opens a handle that it reads from the descriptor named first, and writes to the memory.
#include <cstdlib>
#include <cuda_runtime.h>
#include <unistd.h>

int main(int argc, char** argv) {
  cudaIpcMemHandle_t handle{};
  int* memory = nullptr;
  int* again = nullptr;
  if (argc < 2 || read(std::atoi(argv[1]), &handle, sizeof(handle)) != sizeof(handle)) {
    return 1;
  }
  const unsigned flags = cudaIpcMemLazyEnablePeerAccess;
  if (cudaIpcOpenMemHandle(reinterpret_cast<void**>(&memory), handle, flags) != cudaSuccess ||
      cudaIpcOpenMemHandle(reinterpret_cast<void**>(&again), handle, flags) != cudaSuccess ||
      again != memory) {
    return 2;
  }
  const int value = 4711;
  if (cudaMemcpy(memory + 999, &value, sizeof(value), cudaMemcpyHostToDevice) != cudaSuccess ||
      cudaMemcpy(memory + 1000, &value, 1, cudaMemcpyHostToDevice) != cudaErrorInvalidValue) {
    return 3;
  }
  const bool closed = cudaIpcCloseMemHandle(memory) == cudaSuccess &&
                      cudaIpcCloseMemHandle(again) == cudaSuccess &&
                      cudaIpcCloseMemHandle(again) == cudaErrorInvalidValue;
  return closed ? 0 : 4;
}
