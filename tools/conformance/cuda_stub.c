/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for CUDA's driver (libcuda.so.1) in the processes of the conformance kit and of jobs of
 * CPU ranks, for plugins that look for it although they are used without a GPU
 * (`--with-cuda-stub`). Every function says that there is no GPU, but those that tell versions and
 * errors; any name can be asked for with cuGetProcAddress. Written from the documented names alone;
 * nothing of it is CUDA's.
 */
#include "tools/conformance/cuda_stub.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { kSuccess = 0, kNoDevice = 100 /* CUDA_ERROR_NO_DEVICE */, kNotFound = 500 };

/* Arguments are in registers, which a callee need not look at. */
static int says_no_device(void) { return kNoDevice; }
#define SAYS_NO_DEVICE(name) \
  EXPORT int name(void);     \
  int name(void) { return kNoDevice; }

SAYS_NO_DEVICE(cuInit)
SAYS_NO_DEVICE(cuDeviceGet)
SAYS_NO_DEVICE(cuDeviceGetAttribute)
SAYS_NO_DEVICE(cuDeviceGetByPCIBusId)
SAYS_NO_DEVICE(cuDeviceGetCount)
SAYS_NO_DEVICE(cuDeviceGetName)
SAYS_NO_DEVICE(cuDeviceGetPCIBusId)
SAYS_NO_DEVICE(cuDeviceGetUuid)
SAYS_NO_DEVICE(cuDeviceGetUuid_v2)
SAYS_NO_DEVICE(cuDevicePrimaryCtxRelease_v2)
SAYS_NO_DEVICE(cuDevicePrimaryCtxRetain)
SAYS_NO_DEVICE(cuCtxCreate_v2)
SAYS_NO_DEVICE(cuCtxDestroy_v2)
SAYS_NO_DEVICE(cuCtxGetCurrent)
SAYS_NO_DEVICE(cuCtxGetDevice)
SAYS_NO_DEVICE(cuCtxPopCurrent_v2)
SAYS_NO_DEVICE(cuCtxPushCurrent_v2)
SAYS_NO_DEVICE(cuCtxSetCurrent)
SAYS_NO_DEVICE(cuCtxSynchronize)
SAYS_NO_DEVICE(cuFlushGPUDirectRDMAWrites)
SAYS_NO_DEVICE(cuMemAlloc_v2)
SAYS_NO_DEVICE(cuMemFree_v2)
SAYS_NO_DEVICE(cuMemGetAddressRange_v2)
SAYS_NO_DEVICE(cuMemGetHandleForAddressRange)
SAYS_NO_DEVICE(cuMemHostRegister_v2)
SAYS_NO_DEVICE(cuMemHostUnregister)
SAYS_NO_DEVICE(cuMemcpy)
SAYS_NO_DEVICE(cuMemcpyDtoH_v2)
SAYS_NO_DEVICE(cuMemcpyHtoD_v2)
SAYS_NO_DEVICE(cuPointerGetAttribute)
SAYS_NO_DEVICE(cuPointerGetAttributes)
SAYS_NO_DEVICE(cuPointerSetAttribute)
SAYS_NO_DEVICE(cuStreamCreate)
SAYS_NO_DEVICE(cuStreamDestroy_v2)
SAYS_NO_DEVICE(cuStreamSynchronize)
SAYS_NO_DEVICE(cuGetExportTable)

EXPORT int cuDriverGetVersion(int* version);
int cuDriverGetVersion(int* version) { return *version = PLEXUS_STUB_CUDA_VERSION, kSuccess; }
EXPORT int cuGetErrorName(int error, const char** text);
int cuGetErrorName(int error, const char** text) {
  return *text = error == kSuccess ? "CUDA_SUCCESS" : "CUDA_ERROR_NO_DEVICE", kSuccess;
}
EXPORT int cuGetErrorString(int error, const char** text);
int cuGetErrorString(int error, const char** text) {
  return *text = error == kSuccess ? "no error" : "no CUDA device (a stub of Plexus)", kSuccess;
}

EXPORT int cuGetProcAddress(const char* name,
                            plexus_stub_function_t* function,
                            int version,
                            uint64_t flags);
EXPORT int cuGetProcAddress_v2(
    const char* name, plexus_stub_function_t* function, int version, uint64_t flags, int* result);

plexus_stub_function_t plexus_stub_find_driver_function(const char* name) {
  static const struct {
    const char* name;
    plexus_stub_function_t function;
  } kOthers[] = {{"cuDriverGetVersion", (plexus_stub_function_t)cuDriverGetVersion},
                 {"cuGetErrorName", (plexus_stub_function_t)cuGetErrorName},
                 {"cuGetErrorString", (plexus_stub_function_t)cuGetErrorString},
                 {"cuGetProcAddress", (plexus_stub_function_t)cuGetProcAddress_v2}};
  for (size_t i = 0; i < sizeof kOthers / sizeof *kOthers; ++i) {
    if (strcmp(name, kOthers[i].name) == 0) {
      return kOthers[i].function;
    }
  }
  return strncmp(name, "cu", 2) == 0 ? (plexus_stub_function_t)says_no_device : NULL;
}

int cuGetProcAddress(const char* name,
                     plexus_stub_function_t* function,
                     int version,
                     uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
int cuGetProcAddress_v2(
    const char* name, plexus_stub_function_t* function, int version, uint64_t flags, int* result) {
  (void)version, (void)flags, *function = plexus_stub_find_driver_function(name);
  if (result != NULL) {
    *result = *function == NULL; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
  }
  return *function == NULL ? kNotFound : kSuccess;
}
