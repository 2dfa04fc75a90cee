// SPDX-License-Identifier: Apache-2.0
// Conversions between float and the small floating types: exact, or rounded to nearest even. Bits
// in and bits out, for host and device. IEEE half, bfloat16, and the two fp8 formats of "FP8
// formats for deep learning" (Micikevicius et al., 2022): e5m2 has infinities, e4m3 has none and
// one NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/layout/macros.hpp"

namespace plexus {
// NOLINTBEGIN(readability-magic-numbers): bit positions of the formats

/// A small format: `mantissa_bits`, `exponent_bits`, and the meaning of its largest exponent.
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // false: the top exponent holds numbers; all ones is NaN
  bool saturates;     // finite values beyond the range become the largest finite one
};
inline constexpr SmallFloat kHalf{5, 10, true, false};
inline constexpr SmallFloat kE5m2{5, 2, true, true};
inline constexpr SmallFloat kE4m3{4, 3, false, true};

/// The value of `bits` in `format`; every value of these formats is a float.
PLEXUS_HOST_DEVICE constexpr float widen(SmallFloat format, uint32_t bits) {
  const uint32_t mantissa_mask = (1U << format.mantissa_bits) - 1;
  const uint32_t exponent_mask = (1U << format.exponent_bits) - 1;
  const uint32_t sign = (bits >> (format.exponent_bits + format.mantissa_bits)) & 1;
  const uint32_t exponent = (bits >> format.mantissa_bits) & exponent_mask;
  uint32_t mantissa = bits & mantissa_mask;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const bool top = exponent == exponent_mask;
  if (top && (format.has_infinity || mantissa == mantissa_mask)) {
    const uint32_t payload = mantissa << (23 - format.mantissa_bits);
    const uint32_t quiet = mantissa != 0 ? 0x00400000U : 0U;
    return std::bit_cast<float>(sign << 31 | 0x7f800000U | payload | quiet);
  }
  if (exponent == 0) {
    if (mantissa == 0) {
      return std::bit_cast<float>(sign << 31);
    }
    int shift = 0;  // subnormal numbers are normal floats
    while ((mantissa >> format.mantissa_bits) == 0) {
      mantissa <<= 1;
      ++shift;
    }
    const auto wide = static_cast<uint32_t>(127 - bias + 1 - shift);
    return std::bit_cast<float>(sign << 31 | wide << 23 |
                                (mantissa & mantissa_mask) << (23 - format.mantissa_bits));
  }
  const auto wide = static_cast<uint32_t>(static_cast<int>(exponent) - bias + 127);
  return std::bit_cast<float>(sign << 31 | wide << 23 | mantissa << (23 - format.mantissa_bits));
}

/// `value` rounded to nearest even in `format`. NaN stays NaN; infinity saturates in formats that
/// saturate.
PLEXUS_HOST_DEVICE constexpr uint32_t narrow(SmallFloat format, float value) {
  const auto wide = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (wide >> 31) << (format.exponent_bits + format.mantissa_bits);
  const uint32_t magnitude = wide & 0x7fffffffU;
  const uint32_t mantissa_mask = (1U << format.mantissa_bits) - 1;
  const uint32_t exponent_mask = (1U << format.exponent_bits) - 1;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const uint32_t infinity = exponent_mask << format.mantissa_bits;
  const uint32_t largest = format.has_infinity ? infinity - 1 : (infinity | mantissa_mask) - 1;
  if (magnitude > 0x7f800000U) {
    if (!format.has_infinity) {
      return sign | infinity | mantissa_mask;
    }
    const uint32_t payload = (magnitude >> (23 - format.mantissa_bits)) & mantissa_mask;
    return sign | infinity | payload | 1U << (format.mantissa_bits - 1);
  }
  const uint32_t overflow = format.saturates ? largest : infinity;
  if (magnitude == 0x7f800000U) {
    return sign | overflow;
  }
  const int exponent = static_cast<int>(magnitude >> 23) - 127 + bias;
  uint32_t significand = magnitude & 0x007fffffU;
  int drop = 23 - format.mantissa_bits;
  uint32_t base = 0;
  if (exponent <= 0) {  // subnormal or zero: shift the hidden bit in
    drop += 1 - exponent;
    if (drop > 25) {
      return sign;
    }
    significand |= 0x00800000U;
  } else {
    base = static_cast<uint32_t>(exponent) << format.mantissa_bits;
  }
  const uint32_t half = 1U << (drop - 1);
  const uint32_t rest = significand & ((1U << drop) - 1);
  uint32_t result = base + (significand >> drop);
  if (rest > half || (rest == half && (result & 1) != 0)) {
    ++result;  // a carry into the exponent gives the right result
  }
  return sign | (result > largest ? overflow : result);
}

PLEXUS_HOST_DEVICE constexpr float widen_bfloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
PLEXUS_HOST_DEVICE constexpr uint16_t narrow_bfloat16(float value) {
  const auto wide = std::bit_cast<uint32_t>(value);
  if ((wide & 0x7fffffffU) > 0x7f800000U) {
    return static_cast<uint16_t>(wide >> 16 | 0x40U);
  }
  return static_cast<uint16_t>((wide + 0x7fffU + ((wide >> 16) & 1)) >> 16);
}

// NOLINTEND(readability-magic-numbers)
}  // namespace plexus
