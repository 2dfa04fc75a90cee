// SPDX-License-Identifier: Apache-2.0
#include "plugins/collnet-aggregator/arithmetic.hpp"

#include <bit>
#include <cstring>
#include <type_traits>

#include "plugin-api/plexus_collnet.h"

namespace plexus::aggregator {
namespace {

constexpr uint32_t kFloatSign = 0x8000'0000;
constexpr uint32_t kFloatInfinity = 0x7f80'0000;

/// A 16-bit float with `mantissa` bits of fraction and 15 - `mantissa` bits of exponent.
template <int mantissa>
struct Small {
  uint16_t bits;

  static constexpr int kShift = 23 - mantissa;  // from its fraction to that of a float
  static constexpr int kBias = (1 << (14 - mantissa)) - 1;
  static constexpr uint16_t kInfinity = static_cast<uint16_t>(0x7fffU >> mantissa << mantissa);

  [[nodiscard]] float widen() const noexcept {
    const uint32_t sign = (bits & 0x8000U) << 16U;
    const uint32_t magnitude = bits & 0x7fffU;
    if (magnitude >= kInfinity) {
      return std::bit_cast<float>(sign | kFloatInfinity | (magnitude - kInfinity) << kShift);
    }
    // Multiplying by the difference of the exponents' biases also handles subnormal numbers.
    const auto same = std::bit_cast<float>(magnitude << kShift);
    const auto scale = std::bit_cast<float>(static_cast<uint32_t>(127 + 127 - kBias) << 23U);
    const float value = kBias == 127 ? same : same * scale;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }

  [[nodiscard]] static Small narrow(float value) noexcept {
    const auto raw = std::bit_cast<uint32_t>(value);
    const auto sign = static_cast<uint16_t>((raw & kFloatSign) >> 16U);
    uint32_t magnitude = raw & ~kFloatSign;
    if (magnitude > kFloatInfinity) {
      return {static_cast<uint16_t>(sign | kInfinity | 1U << (mantissa - 1))};  // NaN
    }
    constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(127 - kBias + 1) << 23U;
    if (kBias != 127 && magnitude < kSmallestNormal) {
      // Adding a power of two whose last bit is the smallest number rounds like the hardware.
      constexpr uint32_t kStep = static_cast<uint32_t>(127 - kBias + 1 + kShift) << 23U;
      const float rounded = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kStep);
      return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - kStep))};
    }
    magnitude -= static_cast<uint32_t>(127 - kBias) << 23U;
    const uint32_t half = (1U << (kShift - 1)) - 1 + (magnitude >> kShift & 1U);
    const uint32_t rounded = (magnitude + half) >> kShift;
    return {static_cast<uint16_t>(sign | (rounded > kInfinity ? kInfinity : rounded))};
  }
};
using Half = Small<10>;
using Bfloat = Small<7>;

template <class T>
struct WideOf {
  using Type = std::conditional_t<sizeof(T) < sizeof(uint64_t), uint64_t, std::make_unsigned_t<T>>;
};
template <>
struct WideOf<float> {
  using Type = float;
};
template <>
struct WideOf<double> {
  using Type = double;
};

/// As on the ranks: integers wrap.
template <class T>
T apply(int32_t op, T a, T b) noexcept {
  using Wide = typename WideOf<T>::Type;
  switch (op) {
    case PLEXUS_REDUCE_SUM:
      return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
    case PLEXUS_REDUCE_PROD:
      return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
    case PLEXUS_REDUCE_MAX:
      return PLEXUS_LARGER_OF(a, b);
    default:
      return PLEXUS_SMALLER_OF(a, b);
  }
}
template <int mantissa>
Small<mantissa> apply(int32_t op, Small<mantissa> a, Small<mantissa> b) noexcept {
  return Small<mantissa>::narrow(apply(op, a.widen(), b.widen()));
}

template <class T>
void combine_as(int32_t op, std::span<std::byte> sum, std::span<const std::byte> part) noexcept {
  for (size_t at = 0; at + sizeof(T) <= sum.size(); at += sizeof(T)) {
    T a;
    T b;
    std::memcpy(&a, sum.data() + at, sizeof(T));
    std::memcpy(&b, part.data() + at, sizeof(T));
    const T made = apply(op, a, b);
    std::memcpy(sum.data() + at, &made, sizeof(T));
  }
}

struct Kind {
  uint32_t bytes;
  void (*combine)(int32_t, std::span<std::byte>, std::span<const std::byte>);
};
constexpr Kind kKinds[] = {
    {1, combine_as<int8_t>},   {1, combine_as<uint8_t>}, {4, combine_as<int32_t>},
    {4, combine_as<uint32_t>}, {8, combine_as<int64_t>}, {8, combine_as<uint64_t>},
    {2, combine_as<Half>},     {4, combine_as<float>},   {8, combine_as<double>},
    {2, combine_as<Bfloat>},
};

}  // namespace

uint32_t element_bytes(int32_t type) noexcept {
  const bool is_known = type >= 0 && static_cast<size_t>(type) < std::size(kKinds);
  return is_known ? kKinds[type].bytes : 0;
}

bool can_reduce(int32_t type, int32_t op) noexcept {
  return element_bytes(type) != 0 && op >= PLEXUS_REDUCE_SUM && op <= PLEXUS_REDUCE_MIN;
}

void combine(int32_t type,
             int32_t op,
             std::span<std::byte> sum,
             std::span<const std::byte> part) noexcept {
  kKinds[type].combine(op, sum, part);
}

}  // namespace plexus::aggregator
