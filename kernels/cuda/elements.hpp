// SPDX-License-Identifier: Apache-2.0
// Element-wise arithmetic on the device, in units of 8 bytes with one to eight elements. All
// results have the bits of kernels/host/reduce: integers wrap, small floats compute in float and
// round once per step, min and max drop a NaN. The NaN that a sum or product becomes follows x86:
// the NaN operand made quiet; of two the first; without one the negative default. (A host compiler
// may swap the operands of a sum and so take the other of two NaNs.)
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/layout/extremum.hpp"
#include "kernels/layout/macros.hpp"
#include "kernels/layout/types.hpp"

namespace plexus {
// NOLINTBEGIN(readability-magic-numbers): bit positions of the formats

inline constexpr uint32_t kUnitBytes = 8;

template <ReduceKind kind, class T>
PLEXUS_DEVICE T combine_integers(T a, T b) {
  if constexpr (kind == ReduceKind::kMax || kind == ReduceKind::kMin) {
    return extremum<kind == ReduceKind::kMax>(a, b);
  } else {
    using U = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;  // wraps
    const auto x = static_cast<U>(a);
    const auto y = static_cast<U>(b);
    return static_cast<T>(kind == ReduceKind::kSum ? x + y : x * y);
  }
}

/// The NaN that x86 returns for an operation on `a` and `b`.
template <class T>
PLEXUS_DEVICE T nan_of(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  constexpr Bits kQuiet = Bits{1} << (sizeof(T) == 4 ? 22 : 51);
  constexpr Bits kDefault = ~(kQuiet - 1);
  if (a != a) {
    return std::bit_cast<T>(std::bit_cast<Bits>(a) | kQuiet);
  }
  return std::bit_cast<T>(b != b ? std::bit_cast<Bits>(b) | kQuiet : kDefault);
}

template <ReduceKind kind, class T>
PLEXUS_DEVICE T combine_floats(T a, T b) {
  if constexpr (kind == ReduceKind::kSum || kind == ReduceKind::kProd) {
    const T result = kind == ReduceKind::kSum ? a + b : a * b;
    return result != result ? nan_of(a, b) : result;
  } else {
    return extremum<kind == ReduceKind::kMax>(a, b);
  }
}

/// widen() and narrow() for the 8-bit formats without branches. The bits of a small number, moved
/// to a float's position, are that number times a power of two, also for subnormal numbers.
template <int exponent_bits, int mantissa_bits, bool has_infinity>
struct Float8 {
  static constexpr int kBias = (1 << (exponent_bits - 1)) - 1;
  static constexpr uint32_t kInfinity = ((1U << exponent_bits) - 1) << mantissa_bits;
  static constexpr uint32_t kMantissa = (1U << mantissa_bits) - 1;
  static constexpr uint32_t kLargest = has_infinity ? kInfinity - 1 : (kInfinity | kMantissa) - 1;

  PLEXUS_DEVICE static float to_float(uint32_t bits) {
    constexpr uint32_t kScale = static_cast<uint32_t>(127 + 127 - kBias) << 23;
    const uint32_t magnitude = bits & 0x7fU;
    const uint32_t sign = (bits & 0x80U) << 24;
    const uint32_t moved = magnitude << (23 - mantissa_bits);
    if (magnitude > kLargest) {
      const uint32_t quiet = (magnitude & kMantissa) != 0 ? 0x00400000U : 0U;
      return std::bit_cast<float>(sign | 0x7f800000U | moved | quiet);
    }
    return std::bit_cast<float>(
        sign | std::bit_cast<uint32_t>(std::bit_cast<float>(moved) * std::bit_cast<float>(kScale)));
  }

  PLEXUS_DEVICE static uint32_t from_float(float value) {
    constexpr int kDrop = 23 - mantissa_bits;
    constexpr uint32_t kLeastNormal = static_cast<uint32_t>(127 + 1 - kBias) << 23;
    // Its last bit has the weight of the least subnormal number, so that adding it rounds there.
    constexpr uint32_t kMagic = static_cast<uint32_t>(127 + 1 - kBias + kDrop) << 23;
    const auto wide = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (wide >> 24) & 0x80U;
    const uint32_t magnitude = wide & 0x7fffffffU;
    if (magnitude > 0x7f800000U) {
      const uint32_t payload =
          has_infinity ? (magnitude >> kDrop & kMantissa) | 1U << (mantissa_bits - 1) : kMantissa;
      return sign | kInfinity | payload;
    }
    uint32_t result = 0;
    if (magnitude < kLeastNormal) {
      result =
          std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kMagic)) -
          kMagic;
    } else {
      const uint32_t odd = (magnitude >> kDrop) & 1;
      const uint32_t rebased = magnitude - (static_cast<uint32_t>(127 - kBias) << 23);
      result = (rebased + (1U << (kDrop - 1)) - 1 + odd) >> kDrop;
    }
    return sign | (result > kLargest ? kLargest : result);
  }
};

/// Half precision on the device: the hardware's conversions equal small_float.hpp's for everything
/// but NaN (exact in one direction; in the other to nearest even, with subnormals).
#if PLEXUS_COMPILES_CUDA
PLEXUS_DEVICE inline float half_to_float(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
PLEXUS_DEVICE inline uint16_t float_to_half(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#else
inline float half_to_float(uint16_t bits) { return widen(kHalf, bits); }
inline uint16_t float_to_half(float value) { return static_cast<uint16_t>(narrow(kHalf, value)); }
#endif

/// The conversion of small_float.hpp, for NaN. Not inlined, because it is rare and long.
template <ReduceKind kind>
PLEXUS_DEVICE_NOINLINE uint16_t combine_halves_exactly(uint16_t a, uint16_t b) {
  constexpr SmallFloat kFormat{5, 10, true, false};
  return static_cast<uint16_t>(
      narrow(kFormat, combine_floats<kind>(widen(kFormat, a), widen(kFormat, b))));
}

template <ReduceKind kind>
PLEXUS_DEVICE uint16_t combine_halves(uint16_t a, uint16_t b) {
  const float value = combine_floats<kind>(half_to_float(a), half_to_float(b));
  return value != value ? combine_halves_exactly<kind>(a, b) : float_to_half(value);
}

/// The storage of a type and its arithmetic.
template <DataType type>
struct Element;

template <class T>
struct IntegerElement {
  using Bits = std::make_unsigned_t<T>;
  template <ReduceKind kind>
  PLEXUS_DEVICE static Bits combine(Bits a, Bits b) {
    return static_cast<Bits>(combine_integers<kind>(static_cast<T>(a), static_cast<T>(b)));
  }
  PLEXUS_DEVICE static Bits divide(Bits a, uint32_t divisor) {
    // A divisor is a number of ranks, which fits in 32 bits also with a sign.
    using Wide = std::conditional_t<sizeof(T) == 8, T,
                                    std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>>;
    return static_cast<Bits>(static_cast<Wide>(static_cast<T>(a)) / static_cast<Wide>(divisor));
  }
};
template <>
struct Element<DataType::kInt8> : IntegerElement<int8_t> {};
template <>
struct Element<DataType::kUint8> : IntegerElement<uint8_t> {};
template <>
struct Element<DataType::kInt32> : IntegerElement<int32_t> {};
template <>
struct Element<DataType::kUint32> : IntegerElement<uint32_t> {};
template <>
struct Element<DataType::kInt64> : IntegerElement<int64_t> {};
template <>
struct Element<DataType::kUint64> : IntegerElement<uint64_t> {};

template <class T, class Storage>
struct FloatElement {
  using Bits = Storage;
  template <ReduceKind kind>
  PLEXUS_DEVICE static Bits combine(Bits a, Bits b) {
    return std::bit_cast<Bits>(combine_floats<kind>(std::bit_cast<T>(a), std::bit_cast<T>(b)));
  }
};
template <>
struct Element<DataType::kFloat32> : FloatElement<float, uint32_t> {};
template <>
struct Element<DataType::kFloat64> : FloatElement<double, uint64_t> {};

template <>
struct Element<DataType::kFloat16> {
  using Bits = uint16_t;
  template <ReduceKind kind>
  PLEXUS_DEVICE static Bits combine(Bits a, Bits b) {
    return combine_halves<kind>(a, b);
  }
};
template <>
struct Element<DataType::kBfloat16> {
  using Bits = uint16_t;
  template <ReduceKind kind>
  PLEXUS_DEVICE static Bits combine(Bits a, Bits b) {
    return narrow_bfloat16(combine_floats<kind>(widen_bfloat16(a), widen_bfloat16(b)));
  }
};

template <class Format>
struct Float8Element {
  using Bits = uint8_t;
  template <ReduceKind kind>
  PLEXUS_DEVICE static Bits combine(Bits a, Bits b) {
    return static_cast<Bits>(
        Format::from_float(combine_floats<kind>(Format::to_float(a), Format::to_float(b))));
  }
};
template <>
struct Element<DataType::kFloat8e4m3> : Float8Element<Float8<4, 3, false>> {};
template <>
struct Element<DataType::kFloat8e5m2> : Float8Element<Float8<5, 2, true>> {};

/// Applies `function` to each pair of elements of two 32-bit words.
template <class Bits, class Function>
PLEXUS_DEVICE uint32_t for_elements_of_word(uint32_t a, uint32_t b, Function function) {
  constexpr uint32_t kBits = sizeof(Bits) * 8;
  uint32_t result = 0;
  PLEXUS_UNROLL
  for (uint32_t at = 0; at < 32; at += kBits) {
    const Bits made = function(static_cast<Bits>(a >> at), static_cast<Bits>(b >> at));
    result |= uint32_t{made} << at;
  }
  return result;
}
/// Applies `function` to each pair of elements of two units.
template <class Bits, class Function>
PLEXUS_DEVICE uint64_t for_elements(uint64_t a, uint64_t b, Function function) {
  if constexpr (sizeof(Bits) == kUnitBytes) {
    return function(a, b);
  } else {
    const uint32_t low =
        for_elements_of_word<Bits>(static_cast<uint32_t>(a), static_cast<uint32_t>(b), function);
    const uint32_t high = for_elements_of_word<Bits>(static_cast<uint32_t>(a >> 32),
                                                     static_cast<uint32_t>(b >> 32), function);
    return uint64_t{high} << 32 | low;
  }
}

/// The arithmetic of a pass that only combines operands.
template <DataType type, ReduceKind kind>
struct Combining {
  using Bits = typename Element<type>::Bits;
  static constexpr bool kCombines = true;
  static constexpr bool kIsExtended = false;
  static constexpr uint32_t kVectorsInFlight = sizeof(Bits) == 1 ? 2 : 4;

  PLEXUS_DEVICE static uint64_t combine(uint64_t a, uint64_t b) {
    return for_elements<Bits>(
        a, b, [](Bits x, Bits y) { return Element<type>::template combine<kind>(x, y); });
  }
};

/// Sums that first multiply the own operand, or divide the value. (ReduceOp makes no other ones.)
template <DataType type>
struct ExtendedSum : Combining<type, ReduceKind::kSum> {
  using typename Combining<type, ReduceKind::kSum>::Bits;
  static constexpr bool kIsExtended = true;
  static constexpr uint32_t kVectorsInFlight = is_floating(type) && sizeof(Bits) > 1 ? 2 : 1;

  PLEXUS_DEVICE static uint64_t scale(uint64_t a, uint64_t scalar_bits) {
    const auto scalar = static_cast<Bits>(scalar_bits);
    return for_elements<Bits>(a, 0, [scalar](Bits x, Bits) {
      return Element<type>::template combine<ReduceKind::kProd>(x, scalar);
    });
  }
  PLEXUS_DEVICE static uint64_t divide(uint64_t a, uint32_t divisor) {
    if constexpr (is_floating(type)) {
      return a;
    } else {
      return for_elements<Bits>(
          a, 0, [divisor](Bits x, Bits) { return Element<type>::divide(x, divisor); });
    }
  }
};

/// A pass with one operand that is only copied.
struct Copying {
  static constexpr bool kCombines = false;
  static constexpr bool kIsExtended = false;
  static constexpr uint32_t kVectorsInFlight = 8;
  PLEXUS_DEVICE static uint64_t combine(uint64_t a, uint64_t /*b*/) { return a; }
};

// NOLINTEND(readability-magic-numbers)
}  // namespace plexus
