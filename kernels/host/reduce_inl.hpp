// SPDX-License-Identifier: Apache-2.0
// The loops of reduce.cpp, compiled once per instruction set by Highway's foreach_target. They are
// plain loops that the compiler vectorises; only half precision needs explicit vector conversions.
// `ivdep` holds: the target is exactly one of the sources or overlaps none.

// Highway's guard: once per target, not once per translation unit.
#if defined(PLEXUS_REDUCE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef PLEXUS_REDUCE_INL_HPP
#undef PLEXUS_REDUCE_INL_HPP
#else
#define PLEXUS_REDUCE_INL_HPP
#endif

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/host/reduce.hpp"
#include "kernels/layout/extremum.hpp"

HWY_BEFORE_NAMESPACE();
namespace plexus {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// One pairwise operation on a native type (float for the small floating types).
template <ReduceKind kind, class T>
HWY_INLINE T combine(T a, T b) {
  if constexpr (kind == ReduceKind::kSum || kind == ReduceKind::kProd) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;  // wraps
      const auto x = static_cast<U>(a);
      const auto y = static_cast<U>(b);
      return static_cast<T>(kind == ReduceKind::kSum ? x + y : x * y);
    } else {
      return kind == ReduceKind::kSum ? a + b : a * b;
    }
  } else {
    return extremum<kind == ReduceKind::kMax>(a, b);
  }
}

template <ReduceKind kind, class T>
void reduce_native(void* target, const void* a, const void* b, size_t count) noexcept {
  auto* const t = static_cast<T*>(target);
  const auto* const x = static_cast<const T*>(a);
  const auto* const y = static_cast<const T*>(b);
  PLEXUS_NO_ALIAS_LOOP
  for (size_t i = 0; i < count; ++i) {
    t[i] = combine<kind, T>(x[i], y[i]);
  }
}

HWY_INLINE uint16_t round_to_bfloat16(float value) {
  const auto wide = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (wide + 0x7fffU + ((wide >> 16) & 1)) >> 16;
  const uint32_t quiet = wide >> 16 | 0x40U;
  return static_cast<uint16_t>((wide & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

template <ReduceKind kind>
void reduce_bfloat16(void* target, const void* a, const void* b, size_t count) noexcept {
  auto* const t = static_cast<uint16_t*>(target);
  const auto* const x = static_cast<const uint16_t*>(a);
  const auto* const y = static_cast<const uint16_t*>(b);
  PLEXUS_NO_ALIAS_LOOP
  for (size_t i = 0; i < count; ++i) {
    const auto left = std::bit_cast<float>(static_cast<uint32_t>(x[i]) << 16);
    const auto right = std::bit_cast<float>(static_cast<uint32_t>(y[i]) << 16);
    t[i] = round_to_bfloat16(combine<kind, float>(left, right));
  }
}

template <ReduceKind kind, class V>
HWY_INLINE V combine_vectors(V a, V b) {
  if constexpr (kind == ReduceKind::kSum) {
    return hn::Add(a, b);
  } else if constexpr (kind == ReduceKind::kProd) {
    return hn::Mul(a, b);
  } else {  // extremum()
    const auto a_wins = kind == ReduceKind::kMax ? hn::Gt(a, b) : hn::Lt(a, b);
    return hn::IfThenElse(hn::Or(a_wins, hn::IsNaN(b)), a, b);
  }
}

template <ReduceKind kind>
void reduce_half(void* target, const void* a, const void* b, size_t count) noexcept {
  auto* const t = static_cast<uint16_t*>(target);
  const auto* const x = static_cast<const uint16_t*>(a);
  const auto* const y = static_cast<const uint16_t*>(b);
  size_t i = 0;
#if HWY_TARGET <= HWY_AVX2  // conversions in hardware, rounding to nearest even
  const hn::ScalableTag<float> wide;
  const hn::Rebind<hwy::float16_t, decltype(wide)> narrow_tag;
  const hn::Rebind<uint16_t, decltype(wide)> bits;
  for (const size_t step = hn::Lanes(wide); i + step <= count; i += step) {
    const auto left = hn::PromoteTo(wide, hn::BitCast(narrow_tag, hn::LoadU(bits, x + i)));
    const auto right = hn::PromoteTo(wide, hn::BitCast(narrow_tag, hn::LoadU(bits, y + i)));
    const auto both = combine_vectors<kind>(left, right);
    hn::StoreU(hn::BitCast(bits, hn::DemoteTo(narrow_tag, both)), bits, t + i);
  }
#endif
  for (; i < count; ++i) {
    t[i] = static_cast<uint16_t>(
        narrow(kHalf, combine<kind, float>(widen(kHalf, x[i]), widen(kHalf, y[i]))));
  }
}

template <ReduceKind kind>
ReducePair find_for_kind(DataType type) noexcept {
  switch (type) {
    case DataType::kInt8:
      return &reduce_native<kind, int8_t>;
    case DataType::kUint8:
      return &reduce_native<kind, uint8_t>;
    case DataType::kInt32:
      return &reduce_native<kind, int32_t>;
    case DataType::kUint32:
      return &reduce_native<kind, uint32_t>;
    case DataType::kInt64:
      return &reduce_native<kind, int64_t>;
    case DataType::kUint64:
      return &reduce_native<kind, uint64_t>;
    case DataType::kFloat16:
      return &reduce_half<kind>;
    case DataType::kFloat32:
      return &reduce_native<kind, float>;
    case DataType::kFloat64:
      return &reduce_native<kind, double>;
    case DataType::kBfloat16:
      return &reduce_bfloat16<kind>;
    default:
      return nullptr;  // 8-bit floats use tables, which are the same for all targets
  }
}

ReducePair find_reduce(DataType type, ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum:
      return find_for_kind<ReduceKind::kSum>(type);
    case ReduceKind::kProd:
      return find_for_kind<ReduceKind::kProd>(type);
    case ReduceKind::kMax:
      return find_for_kind<ReduceKind::kMax>(type);
    case ReduceKind::kMin:
      return find_for_kind<ReduceKind::kMin>(type);
    case ReduceKind::kNone:
      break;
  }
  return nullptr;
}

/// Whether some of the values have all bits of an exponent: adding its lowest bit carries into the
/// sign.
template <class T>
HWY_INLINE bool has_not_finite(const void* data, size_t count, T exponent) {
  const auto* const bytes = static_cast<const std::byte*>(data);  // aligned or not
  const auto lowest = static_cast<T>(exponent & -exponent);
  T carries = 0;
  for (size_t i = 0; i < count; ++i) {
    T x;
    std::memcpy(&x, bytes + i * sizeof(T), sizeof(T));
    carries = static_cast<T>(carries | ((x & exponent) + lowest));
  }
  return (carries & (T{1} << (8 * sizeof(T) - 1))) != 0;
}

bool has_not_finite_bits(const void* data, size_t count, size_t size_bytes, uint64_t exponent) {
  switch (size_bytes) {
    case 1:
      return has_not_finite(data, count, static_cast<uint8_t>(exponent));
    case 2:
      return has_not_finite(data, count, static_cast<uint16_t>(exponent));
    case 4:
      return has_not_finite(data, count, static_cast<uint32_t>(exponent));
    default:
      return has_not_finite(data, count, exponent);
  }
}

/// Non-temporal stores, 64 bytes at a time; normal stores for the unaligned head and the tail.
void stream_bytes(void* target, const void* source, size_t size_bytes) {
  auto* to = static_cast<uint8_t*>(target);
  const auto* from = static_cast<const uint8_t*>(source);
  constexpr size_t kAlignment = 64;
  const size_t head = (kAlignment - reinterpret_cast<uintptr_t>(to) % kAlignment) % kAlignment;
  if (head >= size_bytes) {
    std::memcpy(to, from, size_bytes);
    return;
  }
  std::memcpy(to, from, head);
  const hn::ScalableTag<uint8_t> bytes;
  const size_t step = hn::Lanes(bytes);
  size_t i = head;
  for (; i + step <= size_bytes; i += step) {
    hn::Stream(hn::LoadU(bytes, from + i), bytes, to + i);
  }
  std::memcpy(to + i, from + i, size_bytes - i);
  hwy::FlushStream();  // these stores must precede the slot's release
}

}  // namespace HWY_NAMESPACE
}  // namespace plexus
HWY_AFTER_NAMESPACE();

#endif
