/* SPDX-License-Identifier: Apache-2.0
 *
 * To be preloaded into nccl-tests, which want a GPU for each rank of a process: all device numbers
 * mean GPU 0. cc -shared -fPIC -o one_device.so one_device.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

enum { kDevices = 64 };

/* The library's own function; without it nothing can go on. */
static void* next(const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  if (found == NULL) {
    abort();
  }
  return found;
}

int cudaGetDeviceCount(int* count) {
  const int result = ((int (*)(int*))next("cudaGetDeviceCount"))(count);
  if (result == 0 && *count > 0) {
    *count = kDevices;
  }
  return result;
}

int cudaSetDevice(int device) {
  (void)device;
  return ((int (*)(int))next("cudaSetDevice"))(0);
}

int cudaGetDeviceProperties(void* properties, int device) {
  (void)device;
  return ((int (*)(void*, int))next("cudaGetDeviceProperties"))(properties, 0);
}

int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  return ((int (*)(int*, int, int))next("cudaDeviceGetAttribute"))(value, attribute, 0);
}

int ncclCommInitAll(void** comms, int count, const int* devices) {
  (void)devices;
  const int all[kDevices] = {0};
  const int kInvalidArgument = 4;
  if (count > kDevices) {
    return kInvalidArgument;
  }
  return ((int (*)(void**, int, const int*))next("ncclCommInitAll"))(comms, count, all);
}
