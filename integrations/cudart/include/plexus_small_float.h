/* SPDX-License-Identifier: Apache-2.0
 *
 * Floating-point numbers of 8 and 16 bits: conversions from and to float, to the nearest, ties to
 * even. C++ only.
 */
#ifndef PLEXUS_SMALL_FLOAT_H_
#define PLEXUS_SMALL_FLOAT_H_

#include <stdint.h>
#include <string.h>

namespace plexus_cuda {

inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/* A format with `kExponent` and `kMantissa` bits. HAS_INFINITY: IEEE's infinity and NaNs; else the
 * greatest exponent has numbers, too, and all ones are NaN. Too large numbers become the greatest
 * one if SATURATES, infinity or NaN otherwise. */
template <int EXPONENT, int MANTISSA, bool HAS_INFINITY, bool SATURATES>
struct SmallFloat {
  static constexpr int kBias = (1 << (EXPONENT - 1)) - 1;
  static constexpr uint32_t kAllOnes = (1U << (EXPONENT + MANTISSA)) - 1;
  static constexpr uint32_t kInfinity = ((1U << EXPONENT) - 1) << MANTISSA;
  static constexpr uint32_t kGreatest = HAS_INFINITY ? kInfinity - 1 : kAllOnes - 1;

  static uint32_t from(float value) {
    const uint32_t bits = bits_of(value);
    const uint32_t sign = (bits >> 31) << (EXPONENT + MANTISSA);
    const uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) {
      return sign | kAllOnes;
    }
    const int exponent = static_cast<int>(magnitude >> 23) - 127 + kBias;
    uint64_t mantissa = magnitude & 0x7fffffU;
    int shift = 23 - MANTISSA;
    uint64_t result = 0;
    if (exponent >= 1) {
      mantissa |= static_cast<uint64_t>(exponent) << 23;
    } else if (magnitude >= 0x00800000U) { /* of float's normal numbers, denormal here */
      mantissa |= 0x800000U;
      shift += 1 - exponent;
    } else if (EXPONENT != 8) { /* else denormal in both */
      return sign;
    }
    if (shift > 40) {
      return sign;
    }
    const uint64_t half = (1ULL << shift) >> 1;
    const uint64_t rest = mantissa & ((1ULL << shift) - 1);
    result = mantissa >> shift;
    if (shift > 0 && (rest > half || (rest == half && (result & 1) != 0))) {
      ++result;
    }
    if (result > kGreatest) {
      return sign | (SATURATES ? kGreatest : HAS_INFINITY ? kInfinity : kAllOnes);
    }
    return sign | static_cast<uint32_t>(result);
  }

  static float to(uint32_t bits) {
    const uint32_t sign = (bits >> (EXPONENT + MANTISSA)) << 31;
    const uint32_t magnitude = bits & kAllOnes;
    const uint32_t exponent = magnitude >> MANTISSA;
    const uint32_t mantissa = magnitude & ((1U << MANTISSA) - 1);
    if (HAS_INFINITY ? magnitude > kInfinity : magnitude == kAllOnes) {
      return float_of(sign | 0x7fc00000U);
    }
    if (HAS_INFINITY && magnitude == kInfinity) {
      return float_of(sign | 0x7f800000U);
    }
    if (exponent == 0) {
      /* 2 to the power of (1 - kBias - MANTISSA), in two steps since float may not have it */
      float unit = 1;
      for (int i = 0; i < kBias - 1 + MANTISSA; ++i) {
        unit /= 2;
      }
      const float value = static_cast<float>(mantissa) * unit;
      return sign != 0 ? -value : value;
    }
    return float_of(sign | ((exponent + 127 - kBias) << 23) | (mantissa << (23 - MANTISSA)));
  }
};

using Half = SmallFloat<5, 10, true, false>;
using Bfloat16 = SmallFloat<8, 7, true, false>;
using E4m3 = SmallFloat<4, 3, false, true>;
using E5m2 = SmallFloat<5, 2, true, true>;

}  // namespace plexus_cuda

/* What 16-bit numbers can do, computed in float. */
#define PLEXUS_CUDA_ARITHMETIC(type)                                                          \
  inline type operator+(type a, type b) { return type(float(a) + float(b)); }                 \
  inline type& operator+=(type& a, type b) { return a = a + b; }                              \
  inline type operator-(type a, type b) { return type(float(a) - float(b)); }                 \
  inline type& operator-=(type& a, type b) { return a = a - b; }                              \
  inline type operator*(type a, type b) { return type(float(a) * float(b)); }                 \
  inline type& operator*=(type& a, type b) { return a = a * b; }                              \
  inline type operator/(type a, type b) { return type(float(a) / float(b)); }                 \
  inline type& operator/=(type& a, type b) { return a = a / b; }                              \
  inline bool operator==(type a, type b) { return float(a) == float(b); }                     \
  inline bool operator!=(type a, type b) { return float(a) != float(b); }                     \
  inline bool operator<(type a, type b) { return float(a) < float(b); }                       \
  inline bool operator>(type a, type b) { return float(a) > float(b); }                       \
  inline bool operator<=(type a, type b) { return float(a) <= float(b); }                     \
  inline bool operator>=(type a, type b) { return float(a) >= float(b); }                     \
  inline type operator-(type a) { return type(-float(a)); }                                   \
  inline type __hadd(type a, type b) { return a + b; }                                        \
  inline type __hsub(type a, type b) { return a - b; }                                        \
  inline type __hmul(type a, type b) { return a * b; }                                        \
  inline type __hdiv(type a, type b) { return a / b; }                                        \
  inline type __hneg(type a) { return -a; }                                                   \
  inline type __habs(type a) { return float(a) < 0 ? -a : a; }                                \
  inline type __hfma(type a, type b, type c) { return type(float(a) * float(b) + float(c)); } \
  inline type __hmin(type a, type b) {                                                        \
    return float(a) < float(b) || float(b) != float(b) ? a : b;                               \
  }                                                                                           \
  inline type __hmax(type a, type b) {                                                        \
    return float(a) > float(b) || float(b) != float(b) ? a : b;                               \
  }                                                                                           \
  inline bool __heq(type a, type b) { return a == b; }                                        \
  inline bool __hlt(type a, type b) { return a < b; }                                         \
  inline bool __hgt(type a, type b) { return a > b; }                                         \
  inline bool __hisnan(type a) { return float(a) != float(a); }

#endif
