/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for CUDA's runtime (libcudart) in the processes of the conformance kit, so that a
 * plugin that expects its host to have it loaded can be checked on a machine without CUDA
 * (`--with-cudart-stub`). It has the names of the functions that plugins call, and each says that
 * there is no GPU, but those that tell versions and give functions of the driver: of cuda_stub.c.
 * Written from the documented names alone; nothing of it is CUDA's.
 */
#include <stddef.h>
#include <stdint.h>

#include "tools/conformance/cuda_stub.h"

#define EXPORT __attribute__((visibility("default")))
enum { kNoDevice = 100 /* cudaErrorNoDevice */ };

/* Arguments are in registers, which a callee need not look at. */
#define SAYS_NO_DEVICE(name) \
  EXPORT int name(void);     \
  int name(void) { return kNoDevice; }

/* devices */
SAYS_NO_DEVICE(cudaGetDevice)
SAYS_NO_DEVICE(cudaGetDeviceCount)
SAYS_NO_DEVICE(cudaSetDevice)
SAYS_NO_DEVICE(cudaGetDeviceProperties)
SAYS_NO_DEVICE(cudaGetDeviceProperties_v2)
SAYS_NO_DEVICE(cudaDeviceGetAttribute)
SAYS_NO_DEVICE(cudaDeviceGetByPCIBusId)
SAYS_NO_DEVICE(cudaDeviceGetPCIBusId)
SAYS_NO_DEVICE(cudaDeviceCanAccessPeer)
SAYS_NO_DEVICE(cudaDeviceEnablePeerAccess)
SAYS_NO_DEVICE(cudaDeviceGetStreamPriorityRange)
SAYS_NO_DEVICE(cudaDeviceReset)
SAYS_NO_DEVICE(cudaDeviceSynchronize)
/* memory */
SAYS_NO_DEVICE(cudaMalloc)
SAYS_NO_DEVICE(cudaMallocAsync)
SAYS_NO_DEVICE(cudaMallocHost)
SAYS_NO_DEVICE(cudaMallocManaged)
SAYS_NO_DEVICE(cudaFree)
SAYS_NO_DEVICE(cudaFreeAsync)
SAYS_NO_DEVICE(cudaFreeHost)
SAYS_NO_DEVICE(cudaHostAlloc)
SAYS_NO_DEVICE(cudaHostGetDevicePointer)
SAYS_NO_DEVICE(cudaHostRegister)
SAYS_NO_DEVICE(cudaHostUnregister)
SAYS_NO_DEVICE(cudaMemcpy)
SAYS_NO_DEVICE(cudaMemcpyAsync)
SAYS_NO_DEVICE(cudaMemset)
SAYS_NO_DEVICE(cudaMemsetAsync)
SAYS_NO_DEVICE(cudaMemGetInfo)
SAYS_NO_DEVICE(cudaPointerGetAttributes)
SAYS_NO_DEVICE(cudaIpcGetMemHandle)
SAYS_NO_DEVICE(cudaIpcOpenMemHandle)
SAYS_NO_DEVICE(cudaIpcCloseMemHandle)
/* streams and events */
SAYS_NO_DEVICE(cudaStreamCreate)
SAYS_NO_DEVICE(cudaStreamCreateWithFlags)
SAYS_NO_DEVICE(cudaStreamCreateWithPriority)
SAYS_NO_DEVICE(cudaStreamDestroy)
SAYS_NO_DEVICE(cudaStreamIsCapturing)
SAYS_NO_DEVICE(cudaStreamQuery)
SAYS_NO_DEVICE(cudaStreamSynchronize)
SAYS_NO_DEVICE(cudaStreamWaitEvent)
SAYS_NO_DEVICE(cudaThreadExchangeStreamCaptureMode)
SAYS_NO_DEVICE(cudaEventCreate)
SAYS_NO_DEVICE(cudaEventCreateWithFlags)
SAYS_NO_DEVICE(cudaEventDestroy)
SAYS_NO_DEVICE(cudaEventElapsedTime)
SAYS_NO_DEVICE(cudaEventQuery)
SAYS_NO_DEVICE(cudaEventRecord)
SAYS_NO_DEVICE(cudaEventRecordWithFlags)
SAYS_NO_DEVICE(cudaEventSynchronize)
SAYS_NO_DEVICE(cudaLaunchHostFunc)
SAYS_NO_DEVICE(cudaLaunchKernel)
SAYS_NO_DEVICE(cudaFuncGetAttributes)
SAYS_NO_DEVICE(cudaFuncSetAttribute)
/* errors */
SAYS_NO_DEVICE(cudaGetLastError)
SAYS_NO_DEVICE(cudaPeekAtLastError)

EXPORT const char* cudaGetErrorString(int error);
const char* cudaGetErrorString(int error) {
  return error == 0 ? "no error" : "no CUDA device (a stub of the conformance kit)";
}
EXPORT const char* cudaGetErrorName(int error);
const char* cudaGetErrorName(int error) { return error == 0 ? "cudaSuccess" : "cudaErrorNoDevice"; }

/* versions, and functions of the driver */
EXPORT int cudaRuntimeGetVersion(int* version);
int cudaRuntimeGetVersion(int* version) { return *version = PLEXUS_STUB_CUDA_VERSION, 0; }
EXPORT int cudaDriverGetVersion(int* version);
int cudaDriverGetVersion(int* version) { return *version = PLEXUS_STUB_CUDA_VERSION, 0; }
EXPORT int cudaGetDriverEntryPoint(const char* name,
                                   plexus_stub_function_t* function,
                                   uint64_t flags,
                                   int* result);
int cudaGetDriverEntryPoint(const char* name,
                            plexus_stub_function_t* function,
                            uint64_t flags,
                            int* result) {
  (void)flags, *function = plexus_stub_find_driver_function(name);
  if (result != NULL) {
    *result = *function == NULL; /* cudaDriverEntryPointSymbolNotFound */
  }
  return 0;
}
EXPORT int cudaGetDriverEntryPointByVersion(const char* name,
                                            plexus_stub_function_t* function,
                                            unsigned version,
                                            uint64_t flags,
                                            int* result);
int cudaGetDriverEntryPointByVersion(const char* name,
                                     plexus_stub_function_t* function,
                                     unsigned version,
                                     uint64_t flags,
                                     int* result) {
  return (void)version, cudaGetDriverEntryPoint(name, function, flags, result);
}
