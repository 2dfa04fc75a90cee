// SPDX-License-Identifier: Apache-2.0
// The only place that asks which compiler reads the code: host compilers see plain C++. What is
// marked PLEXUS_DEVICE is device code for nvcc and, for its tests on the host, plain code for
// others.
#pragma once

#ifdef __CUDACC__
#define PLEXUS_HOST_DEVICE __host__ __device__
#define PLEXUS_DEVICE __device__
#define PLEXUS_DEVICE_NOINLINE __device__ __noinline__
#define PLEXUS_COMPILES_CUDA 1
#define PLEXUS_UNROLL _Pragma("unroll")
#else
#define PLEXUS_HOST_DEVICE
#define PLEXUS_DEVICE
#define PLEXUS_DEVICE_NOINLINE
#define PLEXUS_COMPILES_CUDA 0
#define PLEXUS_UNROLL
#endif

// Before a loop: its iterations touch no memory of each other. A hint for GCC; clang checks at run
// time.
#if defined(__GNUC__) && !defined(__clang__)
#define PLEXUS_NO_ALIAS_LOOP _Pragma("GCC ivdep")
#else
#define PLEXUS_NO_ALIAS_LOOP
#endif
