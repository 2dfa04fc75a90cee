/* SPDX-License-Identifier: Apache-2.0
 *
 * What libcuda.so.1 asks libcudart for beside the runtime's own functions. Both are of one build,
 * so nothing is promised between versions.
 */
#ifndef PLEXUS_DRIVER_SUPPORT_H_
#define PLEXUS_DRIVER_SUPPORT_H_

#include "driver_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The allocation that an address is in; 0: CUDA does not know it. */
int plexusCudartFindMemory(const void* address, void** base, size_t* bytes);
void plexusCudartUuid(cudaUUID_t* uuid, int device);
/* The log's line for a function of the driver that is not there. */
void plexusCudartRefuse(const char* name);

#ifdef __cplusplus
}
#endif

#endif /* PLEXUS_DRIVER_SUPPORT_H_ */
