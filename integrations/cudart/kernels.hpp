// SPDX-License-Identifier: Apache-2.0
// Kernels that plexus-nvcc compiled as C++ (include/plexus/cpu_kernels.h): the launch in the order
// of a stream, and the threads of a block as contexts that take turns.
#pragma once

#include "integrations/cudart/include/driver_types.h"

namespace plexus::cudart {

struct Grid {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
};

/// The kernel's function for one thread, with what it is passed; freed when it is done.
struct KernelBody {
  void (*run)(void* arguments);
  void (*release)(void* arguments);
  void* arguments;
};

cudaError_t check_grid(const Grid& grid);
/// Runs all blocks, in the calling thread.
void run_grid(const KernelBody& body, const Grid& grid);
/// Puts that on a stream. Takes the arguments, whatever the result.
cudaError_t launch_grid(const KernelBody& body, const Grid& grid, cudaStream_t stream);

}  // namespace plexus::cudart
