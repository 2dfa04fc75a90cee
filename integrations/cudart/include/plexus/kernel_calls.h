/* SPDX-License-Identifier: Apache-2.0
 *
 * What libcudart.so does for kernels that are compiled as C++ (cpu_kernels.h).
 */
#ifndef PLEXUS_KERNEL_CALLS_H_
#define PLEXUS_KERNEL_CALLS_H_

#include <driver_types.h>
#include <stdint.h>

struct plexusKernelThread {
  uint3 thread, block;
  dim3 block_size, grid_size;
};
/* A launch: run(arguments) is the kernel's function for one thread. */
struct plexusKernelWork {
  void (*run)(void* arguments);
  void (*release)(void* arguments);
  void* arguments;
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};
/* How cudaLaunchKernel, which has addresses of arguments only, runs a function. */
struct plexusKernelEntry {
  void (*run)(void* arguments);
  void (*release)(void* arguments);
  void* (*copy)(void** addresses);
};
extern "C" {
const plexusKernelThread* plexusKernelSelf(void); /* of the thread of a kernel that calls */
void* plexusKernelShared(void);                   /* dynamic shared memory of its block */
void plexusKernelSyncBlock(void);
/* Of the threads of its warp that `mask` names, each gives `value` and gets all of them in
 * values[32]. */
void plexusKernelSyncWarp(unsigned mask, uint64_t value, uint64_t* values);
cudaError_t plexusKernelStart(const plexusKernelWork* work);
void plexusKernelRegister(const void* function, const plexusKernelEntry* entry);
}

#endif
