// SPDX-License-Identifier: Apache-2.0
// The only place that asks which compiler reads the code: host compilers see plain C++.
#pragma once

#ifdef __CUDACC__
#define PLEXUS_HOST_DEVICE __host__ __device__
#else
#define PLEXUS_HOST_DEVICE
#endif
