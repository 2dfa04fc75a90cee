// SPDX-License-Identifier: Apache-2.0
// libcuda.so.1: CUDA's driver interface as names for the runtime's functions. All objects are
// those of the libcudart that the program has loaded (12 or 13), else of the one beside this file.
#pragma once

#include "integrations/cudart/driver_support.h"
#include "integrations/cudart/include/cuda.h"
#include "integrations/cudart/include/cuda_runtime_api.h"

#define PLEXUS_CUDA extern "C" __attribute__((visibility("default")))

namespace plexus::cuda {

/// A function of that libcudart; ends the program where there is none.
void* find_in_runtime(const char* name) noexcept;

/// The numbers are the same, but for a few codes that only the runtime has.
constexpr CUresult result_of(cudaError_t error) {
  const bool is_runtimes =
      error == cudaErrorInvalidMemcpyDirection || error == cudaErrorInvalidPitchValue;
  return is_runtimes ? CUDA_ERROR_INVALID_VALUE : static_cast<CUresult>(error);
}

/// The one context of a device.
void* context_of_device(int device);

/// One line of the log (NCCL_DEBUG=WARN), and CUDA_ERROR_NOT_SUPPORTED.
CUresult refuse(const char* name) noexcept;

inline void* pointer(CUdeviceptr address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are numbers
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}

}  // namespace plexus::cuda

/// The runtime's function of this name, found once.
#define PLEXUS_RUNTIME(name)                                                         \
  ([]() noexcept {                                                                   \
    static const auto runtime_function =                                             \
        reinterpret_cast<decltype(&::name)>(::plexus::cuda::find_in_runtime(#name)); \
    return runtime_function;                                                         \
  }())
