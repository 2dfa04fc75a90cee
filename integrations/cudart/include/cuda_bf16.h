/* SPDX-License-Identifier: Apache-2.0
 *
 * __nv_bfloat16: the upper half of a float.
 */
#ifndef PLEXUS_CUDA_BF16_H_
#define PLEXUS_CUDA_BF16_H_

#include "plexus_small_float.h"

typedef struct {
  unsigned short x;
} __nv_bfloat16_raw;

struct alignas(2) __nv_bfloat16 {
  unsigned short __x;
  __nv_bfloat16() = default;
  __nv_bfloat16(float value)
      : __x(static_cast<unsigned short>(plexus_cuda::Bfloat16::from(value))) {}
  __nv_bfloat16(double value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(int value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(unsigned value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(long value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(unsigned long value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(long long value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(unsigned long long value) : __nv_bfloat16(static_cast<float>(value)) {}
  __nv_bfloat16(const __nv_bfloat16_raw& raw) : __x(raw.x) {}
  operator float() const { return plexus_cuda::Bfloat16::to(__x); }
  operator __nv_bfloat16_raw() const { return __nv_bfloat16_raw{__x}; }
};
typedef struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
} __nv_bfloat162;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

PLEXUS_CUDA_ARITHMETIC(__nv_bfloat16)
inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __double2bfloat16(double value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __int2bfloat16_rn(int value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __uint2bfloat16_rn(unsigned value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __ll2bfloat16_rn(long long value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __ull2bfloat16_rn(unsigned long long value) { return __nv_bfloat16(value); }
inline float __bfloat162float(__nv_bfloat16 value) { return float(value); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.__x; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return __nv_bfloat16(__nv_bfloat16_raw{bits});
}

#endif
