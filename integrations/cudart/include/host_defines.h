/* SPDX-License-Identifier: Apache-2.0
 *
 * What CUDA C++ marks functions and variables with; a C++ compiler needs none of it.
 */
#ifndef PLEXUS_HOST_DEFINES_H_
#define PLEXUS_HOST_DEFINES_H_

#ifndef __host__
#define __host__
#endif
#ifndef __device__
#define __device__
#endif
#ifndef __global__
#define __global__
#endif
#ifndef __constant__
#define __constant__
#endif
#ifndef __managed__
#define __managed__
#endif
#ifndef __shared__
#define __shared__ /* plexus/cpu_kernels.h gives it a meaning */
#endif
#ifndef __forceinline__
#define __forceinline__ __inline__ __attribute__((always_inline))
#endif
#ifndef __launch_bounds__
#define __launch_bounds__(...)
#endif
#ifndef __align__
#define __align__(n) __attribute__((aligned(n)))
#endif
#ifndef __grid_constant__
#define __grid_constant__
#endif
#ifndef CUDARTAPI
#define CUDARTAPI
#define CUDART_CB
#endif

#endif
