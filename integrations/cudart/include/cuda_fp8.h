/* SPDX-License-Identifier: Apache-2.0
 *
 * __nv_fp8_e4m3 and __nv_fp8_e5m2: 8 bits, too large numbers become the greatest one.
 */
#ifndef PLEXUS_CUDA_FP8_H_
#define PLEXUS_CUDA_FP8_H_

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "plexus_small_float.h"

typedef unsigned char __nv_fp8_storage_t;

struct __nv_fp8_e4m3 {
  __nv_fp8_storage_t __x;
  __nv_fp8_e4m3() = default;
  explicit __nv_fp8_e4m3(float value)
      : __x(static_cast<unsigned char>(plexus_cuda::E4m3::from(value))) {}
  explicit __nv_fp8_e4m3(double value) : __nv_fp8_e4m3(static_cast<float>(value)) {}
  explicit __nv_fp8_e4m3(int value) : __nv_fp8_e4m3(static_cast<float>(value)) {}
  explicit __nv_fp8_e4m3(unsigned value) : __nv_fp8_e4m3(static_cast<float>(value)) {}
  explicit __nv_fp8_e4m3(long value) : __nv_fp8_e4m3(static_cast<float>(value)) {}
  explicit __nv_fp8_e4m3(unsigned long value) : __nv_fp8_e4m3(static_cast<float>(value)) {}
  explicit __nv_fp8_e4m3(long long value) : __nv_fp8_e4m3(static_cast<float>(value)) {}
  explicit __nv_fp8_e4m3(unsigned long long value) : __nv_fp8_e4m3(static_cast<float>(value)) {}
  explicit __nv_fp8_e4m3(__half value) : __nv_fp8_e4m3(float(value)) {}
  explicit __nv_fp8_e4m3(__nv_bfloat16 value) : __nv_fp8_e4m3(float(value)) {}
  explicit operator float() const { return plexus_cuda::E4m3::to(__x); }
  explicit operator double() const { return plexus_cuda::E4m3::to(__x); }
  explicit operator __half() const { return __half(plexus_cuda::E4m3::to(__x)); }
  explicit operator __nv_bfloat16() const { return __nv_bfloat16(plexus_cuda::E4m3::to(__x)); }
};
struct __nv_fp8_e5m2 {
  __nv_fp8_storage_t __x;
  __nv_fp8_e5m2() = default;
  explicit __nv_fp8_e5m2(float value)
      : __x(static_cast<unsigned char>(plexus_cuda::E5m2::from(value))) {}
  explicit __nv_fp8_e5m2(double value) : __nv_fp8_e5m2(static_cast<float>(value)) {}
  explicit __nv_fp8_e5m2(int value) : __nv_fp8_e5m2(static_cast<float>(value)) {}
  explicit __nv_fp8_e5m2(unsigned value) : __nv_fp8_e5m2(static_cast<float>(value)) {}
  explicit __nv_fp8_e5m2(long value) : __nv_fp8_e5m2(static_cast<float>(value)) {}
  explicit __nv_fp8_e5m2(unsigned long value) : __nv_fp8_e5m2(static_cast<float>(value)) {}
  explicit __nv_fp8_e5m2(long long value) : __nv_fp8_e5m2(static_cast<float>(value)) {}
  explicit __nv_fp8_e5m2(unsigned long long value) : __nv_fp8_e5m2(static_cast<float>(value)) {}
  explicit __nv_fp8_e5m2(__half value) : __nv_fp8_e5m2(float(value)) {}
  explicit __nv_fp8_e5m2(__nv_bfloat16 value) : __nv_fp8_e5m2(float(value)) {}
  explicit operator float() const { return plexus_cuda::E5m2::to(__x); }
  explicit operator double() const { return plexus_cuda::E5m2::to(__x); }
  explicit operator __half() const { return __half(plexus_cuda::E5m2::to(__x)); }
  explicit operator __nv_bfloat16() const { return __nv_bfloat16(plexus_cuda::E5m2::to(__x)); }
};

#endif
