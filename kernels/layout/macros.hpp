// SPDX-License-Identifier: Apache-2.0
// The only place that distinguishes compilers; host compilers see plain C++. PLEXUS_DEVICE marks
// device code for nvcc, which is plain code for other compilers, so that it can be tested on the
// host.
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

// Before a loop: its iterations access disjoint memory. A hint for GCC; clang checks it at run
// time.
#if defined(__GNUC__) && !defined(__clang__)
#define PLEXUS_NO_ALIAS_LOOP _Pragma("GCC ivdep")
#else
#define PLEXUS_NO_ALIAS_LOOP
#endif
