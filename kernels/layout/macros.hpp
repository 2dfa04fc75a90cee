// SPDX-License-Identifier: Apache-2.0
// The only place that asks which compiler reads the code: host compilers see plain C++.
#pragma once

#ifdef __CUDACC__
#define PLEXUS_HOST_DEVICE __host__ __device__
#else
#define PLEXUS_HOST_DEVICE
#endif

// Before a loop: its iterations touch no memory of each other. A hint for GCC; clang checks at run
// time.
#if defined(__GNUC__) && !defined(__clang__)
#define PLEXUS_NO_ALIAS_LOOP _Pragma("GCC ivdep")
#else
#define PLEXUS_NO_ALIAS_LOOP
#endif
