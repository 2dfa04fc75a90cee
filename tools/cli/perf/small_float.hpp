// SPDX-License-Identifier: Apache-2.0
// The 16-bit and 8-bit floating point formats as bit patterns, converted from and to float by plain
// scalar code. The checker of `plexus perf` has its own conversions, so that an error in the
// library's conversions cannot go unnoticed. Rounding is to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace plexus::perf {

/// kExponentBits, kMantissaBits: the widths. kFinite: the all-ones exponent holds numbers, and only
/// all-ones bits are NaN (f8e4m3); values beyond the largest one become that one (as NCCL's fp8
/// does).
template <class BitsType, int kExponentBits, int kMantissaBits, bool kFinite>
struct SmallFloat {
  using Bits = BitsType;
  static constexpr int kMantissa = kMantissaBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr uint32_t kExponentOnes = (1U << kExponentBits) - 1;
  static constexpr uint32_t kSign = 1U << (kExponentBits + kMantissaBits);
  /// Bits of the largest finite number.
  static constexpr uint32_t kLargest = kFinite ? kSign - 2 : (kExponentOnes << kMantissaBits) - 1;

  static constexpr float to_float(Bits bits) noexcept {
    const uint32_t magnitude = bits & (kSign - 1);
    const float sign = (bits & kSign) != 0 ? -1.0F : 1.0F;
    if (magnitude > kLargest) {
      const bool infinite = !kFinite && magnitude == kLargest + 1;
      return infinite ? sign * std::numeric_limits<float>::infinity()
                      : std::numeric_limits<float>::quiet_NaN();
    }
    const uint32_t exponent = magnitude >> kMantissaBits;
    const uint32_t mantissa = magnitude & ((1U << kMantissaBits) - 1);
    const auto fraction =
        static_cast<float>(exponent == 0 ? mantissa : mantissa + (1U << kMantissaBits));
    const int power = (exponent == 0 ? 1 : static_cast<int>(exponent)) - kBias - kMantissaBits;
    return sign * fraction * power_of_two(power);
  }

  static constexpr Bits from_float(float value) noexcept {
    const auto raw = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (raw >> 31U) != 0 ? kSign : 0;
    const uint32_t magnitude = raw & 0x7fffffffU;
    if (magnitude > kFloatInfinity) {
      return static_cast<Bits>(sign | (kSign - 1));  // NaN
    }
    const int exponent = static_cast<int>(magnitude >> kFloatMantissa) - kFloatBias;
    if (exponent < 1 - kBias) {
      return static_cast<Bits>(sign | subnormal(magnitude));
    }
    // Rounding may carry into the exponent, which gives the right result.
    const uint32_t rebias = static_cast<uint32_t>(kFloatBias - kBias) << kFloatMantissa;
    const uint32_t rounded = round_shift(magnitude - rebias, kFloatMantissa - kMantissaBits);
    if (rounded > kLargest) {
      return static_cast<Bits>(sign | (kFinite ? kLargest : kLargest + 1));
    }
    return static_cast<Bits>(sign | rounded);
  }

 private:
  static constexpr int kFloatMantissa = 23;
  static constexpr int kFloatBias = 127;
  static constexpr uint32_t kFloatInfinity = 0x7f800000U;

  static constexpr float power_of_two(int power) noexcept {
    float result = 1.0F;
    for (; power > 0; --power) {
      result *= 2.0F;
    }
    for (; power < 0; ++power) {
      result *= 0.5F;
    }
    return result;
  }

  /// value / 2^shift to nearest, ties to even.
  static constexpr uint32_t round_shift(uint32_t value, int shift) noexcept {
    const uint32_t half = (1U << (shift - 1)) - 1;
    return (value + half + ((value >> shift) & 1U)) >> shift;
  }

  /// Below the smallest normal number, the spacing is constant.
  static constexpr uint32_t subnormal(uint32_t magnitude) noexcept {
    const int stored = static_cast<int>(magnitude >> kFloatMantissa);
    const uint32_t fraction = (magnitude & 0x7fffffU) | (stored != 0 ? 0x800000U : 0U);
    const int exponent = (stored != 0 ? stored : 1) - kFloatBias;
    const int shift = kFloatMantissa - kMantissaBits + (1 - kBias - exponent);
    constexpr int kAllBits = kFloatMantissa + 2;  // shifted further, nothing is left to round up
    return shift == 0 ? fraction : shift > kAllBits ? 0 : round_shift(fraction, shift);
  }
};

using Half = SmallFloat<uint16_t, 5, 10, false>;
using Bfloat16 = SmallFloat<uint16_t, 8, 7, false>;
using Float8e4m3 = SmallFloat<uint8_t, 4, 3, true>;
using Float8e5m2 = SmallFloat<uint8_t, 5, 2, false>;

}  // namespace plexus::perf
