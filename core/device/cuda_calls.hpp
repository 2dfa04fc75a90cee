// SPDX-License-Identifier: Apache-2.0
// What calls of CUDA have in common: errors as sentences, functions of the driver, the device that
// is current.
//
//   const OnDevice on(device);
//   PLEXUS_TRY(create, driver_function<decltype(&cuMemCreate)>("cuMemCreate"));
//   return check(cudaMemsetAsync(memory, 0, size_bytes, stream), "cudaMemsetAsync", device);
#pragma once

#include <cuda_runtime_api.h>

#include "core/base/result.hpp"

namespace plexus {

inline Result<void> check(cudaError_t code, const char* call, int device) {
  if (code == cudaSuccess) {
    return ok();
  }
  // Clear the error, which the user's next CUDA call would report otherwise.
  static_cast<void>(cudaGetLastError());
  return fail(Code::kUnhandledCudaError, "{} failed on cuda:{}: {} ({})", call, device,
              cudaGetErrorString(code), cudaGetErrorName(code));
}

/// Looks up a driver function; the driver library is not linked.
template <class Function>
Result<Function> driver_function(const char* name) {
  constexpr unsigned int kVersion = 12000;  // the CUDA version whose signatures are used here
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t code =
      cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &status);
#else
  static_assert(CUDART_VERSION >= kVersion);
  const cudaError_t code = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &status);
#endif
  if (code != cudaSuccess || status != cudaDriverEntryPointSuccess) {
    static_cast<void>(cudaGetLastError());
    return fail(Code::kUnhandledCudaError, "the CUDA driver has no {}: update the driver", name);
  }
  return reinterpret_cast<Function>(found);
}

/// Makes `device` current (< 0: leaves it) and allows calls that are forbidden while another thread
/// captures a graph. Restores both at the end.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_));
    if (device >= 0 && cudaGetDevice(&before_) == cudaSuccess && before_ != device) {
      changed_ = cudaSetDevice(device) == cudaSuccess;
    }
  }
  ~OnDevice() {
    if (changed_) {
      static_cast<void>(cudaSetDevice(before_));
    }
    static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  int before_ = -1;
  bool changed_ = false;
};

}  // namespace plexus
