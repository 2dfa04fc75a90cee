/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded by tests over libfabric 1.17, whose first call reads all of /proc/kallsyms twice
 * (10,000 system calls, 70 ms of a core) to see whether the kernel lets RDMA cards access GPU
 * memory. These tests start hundreds of processes and have no such card; for them that file is
 * empty. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

__attribute__((visibility("default"))) FILE* fopen(const char* path, const char* mode) {
  FILE* (*real)(const char*, const char*) = NULL;
  *(void**)(&real) = dlsym(RTLD_NEXT, "fopen"); /* POSIX's way; C has no such conversion */
  return real(strcmp(path, "/proc/kallsyms") == 0 ? "/dev/null" : path, mode);
}
