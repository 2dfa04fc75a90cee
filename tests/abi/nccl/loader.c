/* SPDX-License-Identifier: Apache-2.0
 * Loads both names of the library as frameworks do, and says whether a function is the same in
 * both. */
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
  void* const nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  void* const plexus = dlopen("libplexus.so.0", RTLD_NOW | RTLD_LOCAL);
  if (nccl == NULL || plexus == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  {
    void* const one = dlsym(nccl, "ncclAllReduce");
    void* const two = dlsym(plexus, "ncclAllReduce");
    int version = 0;
    int (*get_version)(int*);
    *(void**)&get_version = dlsym(nccl, "ncclGetVersion");
    if (one == NULL || get_version == NULL || get_version(&version) != 0) {
      return 1;
    }
    printf("%s %d\n", one == two ? "same" : "different", version / 100);
  }
  return 0;
}
