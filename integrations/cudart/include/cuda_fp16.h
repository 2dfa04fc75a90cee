/* SPDX-License-Identifier: Apache-2.0
 *
 * half: 16 bits, IEEE.
 */
#ifndef PLEXUS_CUDA_FP16_H_
#define PLEXUS_CUDA_FP16_H_

#include "plexus_small_float.h"

typedef struct {
  unsigned short x;
} __half_raw;

struct alignas(2) __half {
  unsigned short __x;
  __half() = default;
  __half(float value) : __x(static_cast<unsigned short>(plexus_cuda::Half::from(value))) {}
  __half(double value) : __half(static_cast<float>(value)) {}
  __half(int value) : __half(static_cast<float>(value)) {}
  __half(unsigned value) : __half(static_cast<float>(value)) {}
  __half(long value) : __half(static_cast<float>(value)) {}
  __half(unsigned long value) : __half(static_cast<float>(value)) {}
  __half(long long value) : __half(static_cast<float>(value)) {}
  __half(unsigned long long value) : __half(static_cast<float>(value)) {}
  __half(const __half_raw& raw) : __x(raw.x) {}
  operator float() const { return plexus_cuda::Half::to(__x); }
  operator __half_raw() const { return __half_raw{__x}; }
};
typedef struct alignas(4) __half2 {
  __half x, y;
} __half2;
typedef __half half;
typedef __half2 half2;

PLEXUS_CUDA_ARITHMETIC(__half)
inline __half __float2half(float value) { return __half(value); }
inline __half __float2half_rn(float value) { return __half(value); }
inline __half __double2half(double value) { return __half(value); }
inline __half __int2half_rn(int value) { return __half(value); }
inline __half __uint2half_rn(unsigned value) { return __half(value); }
inline __half __ll2half_rn(long long value) { return __half(value); }
inline __half __ull2half_rn(unsigned long long value) { return __half(value); }
inline float __half2float(__half value) { return float(value); }
inline unsigned short __half_as_ushort(__half value) { return value.__x; }
inline __half __ushort_as_half(unsigned short bits) { return __half(__half_raw{bits}); }
inline __half2 __halves2half2(__half a, __half b) { return __half2{a, b}; }
inline __half2 __hadd2(__half2 a, __half2 b) { return __half2{a.x + b.x, a.y + b.y}; }

#endif
