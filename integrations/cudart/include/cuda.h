/* SPDX-License-Identifier: Apache-2.0
 *
 * Types of the CUDA driver interface, of which this folder has no functions: programs that include
 * cuda.h for its types compile.
 */
#ifndef PLEXUS_CUDA_H_
#define PLEXUS_CUDA_H_

#include <stddef.h>
#include <stdint.h>

#include "driver_types.h"

#define CUDA_VERSION 13000

typedef unsigned long long CUdeviceptr;
typedef int CUdevice;
typedef struct CUctx_st* CUcontext;
typedef struct CUmod_st* CUmodule;
typedef struct CUfunc_st* CUfunction;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;
typedef enum cudaError_enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_UNKNOWN = 999
} CUresult;

#endif
