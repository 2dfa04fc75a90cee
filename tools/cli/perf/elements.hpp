// SPDX-License-Identifier: Apache-2.0
// The data types for the generator of `plexus perf`: bits, conversion from double, the number of
// significant bits, and an order of all finite values. Scalar code only.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tools/cli/perf/small_float.hpp"
#include "tools/cli/perf/vocabulary.hpp"

namespace plexus::perf {

template <class T>
struct IntElement {
  using Bits = std::make_unsigned_t<T>;
  using Value = T;
  static constexpr bool kFloating = false;
  /// The value with ordinal 0 is the smallest.
  static constexpr Bits kFlip =
      std::is_signed_v<T> ? Bits(Bits(1) << (8 * sizeof(T) - 1)) : Bits(0);

  static constexpr Bits of_ordinal(uint64_t ordinal) noexcept { return Bits(ordinal) ^ kFlip; }
  static constexpr uint64_t last_ordinal() noexcept { return std::numeric_limits<Bits>::max(); }
  static constexpr Bits one_or_two(bool two) noexcept { return two ? 2 : 1; }
};

/// The common part of the floating types. `Bits` are a sign and a magnitude in ascending order.
template <class B, int kPrecisionBits, int kExponentSpan, uint64_t kLargestBits>
struct FloatElement {
  using Bits = B;
  static constexpr bool kFloating = true;
  /// Integers up to 2^kPrecision are exact.
  static constexpr int kPrecision = kPrecisionBits;
  /// Powers of two from 2^-kSpan to 2^kSpan, with any mantissa, are normal numbers.
  static constexpr int kSpan = kExponentSpan;
  static constexpr Bits kSign = Bits(Bits(1) << (8 * sizeof(Bits) - 1));

  /// Ordinals: -largest .. -smallest, +0, smallest .. largest. There is no -0 in them.
  static constexpr Bits of_ordinal(uint64_t ordinal) noexcept {
    return ordinal < kLargestBits ? Bits(kSign | Bits(kLargestBits - ordinal))
                                  : Bits(ordinal - kLargestBits);
  }
  static constexpr uint64_t last_ordinal() noexcept { return 2 * kLargestBits; }
  /// Steps between the values of `a` and `b`; infinities and NaNs follow the largest value.
  static constexpr uint64_t distance(Bits a, Bits b) noexcept {
    const uint64_t magnitude_a = a & Bits(kSign - 1);
    const uint64_t magnitude_b = b & Bits(kSign - 1);
    if (((a ^ b) & kSign) != 0) {
      return magnitude_a + magnitude_b;
    }
    return magnitude_a > magnitude_b ? magnitude_a - magnitude_b : magnitude_b - magnitude_a;
  }
};

// Significant bits, span of exponents, bits of the largest number.
// NOLINTBEGIN(readability-magic-numbers): this is their table
struct FloatE : FloatElement<uint32_t, 24, 120, 0x7f7fffffU> {
  static constexpr Bits encode(double value) noexcept {
    return std::bit_cast<Bits>(static_cast<float>(value));
  }
  static constexpr double decode(Bits bits) noexcept { return std::bit_cast<float>(bits); }
};
struct DoubleE : FloatElement<uint64_t, 53, 1000, 0x7fefffffffffffffU> {
  static constexpr Bits encode(double value) noexcept { return std::bit_cast<Bits>(value); }
  static constexpr double decode(Bits bits) noexcept { return std::bit_cast<double>(bits); }
};
template <class Format, int kPrecisionBits, int kExponentSpan>
struct SmallE
    : FloatElement<typename Format::Bits, kPrecisionBits, kExponentSpan, Format::kLargest> {
  using Bits = typename Format::Bits;
  static constexpr Bits encode(double value) noexcept {
    return Format::from_float(static_cast<float>(value));
  }
  static constexpr double decode(Bits bits) noexcept {
    return static_cast<double>(Format::to_float(bits));
  }
};
using HalfE = SmallE<Half, 11, 13>;
using Bfloat16E = SmallE<Bfloat16, 8, 120>;
using Float8e4m3E = SmallE<Float8e4m3, 4, 5>;
using Float8e5m2E = SmallE<Float8e5m2, 3, 13>;
// NOLINTEND(readability-magic-numbers)

/// Calls `function.template operator()<Element>()` with the element of `type`.
template <class Function>
decltype(auto) with_element(Type type, Function&& function) {
  switch (type) {
    case Type::kInt8:
      return function.template operator()<IntElement<int8_t>>();
    case Type::kUint8:
      return function.template operator()<IntElement<uint8_t>>();
    case Type::kInt32:
      return function.template operator()<IntElement<int32_t>>();
    case Type::kUint32:
      return function.template operator()<IntElement<uint32_t>>();
    case Type::kInt64:
      return function.template operator()<IntElement<int64_t>>();
    case Type::kUint64:
      return function.template operator()<IntElement<uint64_t>>();
    case Type::kHalf:
      return function.template operator()<HalfE>();
    case Type::kFloat:
      return function.template operator()<FloatE>();
    case Type::kDouble:
      return function.template operator()<DoubleE>();
    case Type::kBfloat16:
      return function.template operator()<Bfloat16E>();
    case Type::kFloat8e4m3:
      return function.template operator()<Float8e4m3E>();
    case Type::kFloat8e5m2:
      break;
  }
  return function.template operator()<Float8e5m2E>();
}

}  // namespace plexus::perf
