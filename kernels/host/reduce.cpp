// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/reduce.hpp"

#include <algorithm>
#include <array>
#include <memory>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/reduce_inl.hpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "kernels/host/reduce_inl.hpp"

#if HWY_ONCE
namespace plexus {
namespace {

HWY_EXPORT(find_reduce);
HWY_EXPORT(stream_bytes);
HWY_EXPORT(has_not_finite_bits);

// ---- 8-bit floats: tables over the 65,536 pairs ----

constexpr size_t kBytes = 256;
using PairTable = std::array<uint8_t, kBytes * kBytes>;

constexpr SmallFloat format_of(DataType type) {
  return type == DataType::kFloat8e4m3 ? kE4m3 : kE5m2;
}

float combine_floats(ReduceKind kind, float a, float b) {
  switch (kind) {
    case ReduceKind::kSum:
      return a + b;
    case ReduceKind::kProd:
      return a * b;
    case ReduceKind::kMax:
      return a > b || b != b ? a : b;
    default:
      return a < b || b != b ? a : b;
  }
}

/// Made on first use and never freed: at most eight tables of 64 KiB.
template <DataType type, ReduceKind kind>
const PairTable& pair_table() {
  static const PairTable* const table = [] {
    auto made = std::make_unique<PairTable>();
    for (uint32_t a = 0; a < kBytes; ++a) {
      for (uint32_t b = 0; b < kBytes; ++b) {
        const float value =
            combine_floats(kind, widen(format_of(type), a), widen(format_of(type), b));
        (*made)[a * kBytes + b] = static_cast<uint8_t>(narrow(format_of(type), value));
      }
    }
    return made.release();
  }();
  return *table;
}

template <DataType type, ReduceKind kind>
void reduce_float8(void* target, const void* a, const void* b, size_t count) noexcept {
  const PairTable& table = pair_table<type, kind>();
  auto* const t = static_cast<uint8_t*>(target);
  const auto* const x = static_cast<const uint8_t*>(a);
  const auto* const y = static_cast<const uint8_t*>(b);
  for (size_t i = 0; i < count; ++i) {
    t[i] = table[x[i] * kBytes + y[i]];
  }
}

template <DataType type>
ReducePair find_float8(ReduceKind kind) noexcept {
  switch (kind) {
    case ReduceKind::kSum:
      return &reduce_float8<type, ReduceKind::kSum>;
    case ReduceKind::kProd:
      return &reduce_float8<type, ReduceKind::kProd>;
    case ReduceKind::kMax:
      return &reduce_float8<type, ReduceKind::kMax>;
    case ReduceKind::kMin:
      return &reduce_float8<type, ReduceKind::kMin>;
    case ReduceKind::kNone:
      break;
  }
  return nullptr;
}

// ---- scale and divide ----

template <class T>
void scale_native(void* target, const void* source, size_t count, uint64_t scalar_bits) {
  T scalar;
  std::memcpy(&scalar, &scalar_bits, sizeof(T));
  auto* const t = static_cast<T*>(target);
  const auto* const x = static_cast<const T*>(source);
  PLEXUS_NO_ALIAS_LOOP
  for (size_t i = 0; i < count; ++i) {
    if constexpr (std::is_integral_v<T>) {
      using U = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;
      t[i] = static_cast<T>(static_cast<U>(x[i]) * static_cast<U>(scalar));
    } else {
      t[i] = x[i] * scalar;
    }
  }
}

void scale_float8(
    void* target, const void* source, size_t count, SmallFloat format, uint32_t scalar_bits) {
  std::array<uint8_t, kBytes> table;
  const float scalar = widen(format, scalar_bits);
  for (uint32_t bits = 0; bits < kBytes; ++bits) {
    table[bits] = static_cast<uint8_t>(narrow(format, widen(format, bits) * scalar));
  }
  auto* const t = static_cast<uint8_t*>(target);
  const auto* const x = static_cast<const uint8_t*>(source);
  for (size_t i = 0; i < count; ++i) {
    t[i] = table[x[i]];
  }
}

/// Multiplies by a block filled with the scalar, using the reduction's product.
void scale_16bit(
    void* target, const void* source, size_t count, DataType type, uint16_t scalar_bits) {
  constexpr size_t kBlock = 256;
  std::array<uint16_t, kBlock> scalars;
  scalars.fill(scalar_bits);
  const ReducePair multiply = find_reduce_pair(type, ReduceKind::kProd);
  auto* const t = static_cast<uint16_t*>(target);
  const auto* const x = static_cast<const uint16_t*>(source);
  for (size_t done = 0; done < count; done += kBlock) {
    multiply(t + done, x + done, scalars.data(), std::min(kBlock, count - done));
  }
}

template <class T>
void divide_native(void* target, const void* source, size_t count, uint32_t divisor) {
  auto* const t = static_cast<T*>(target);
  const auto* const x = static_cast<const T*>(source);
  using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  for (size_t i = 0; i < count; ++i) {
    t[i] = static_cast<T>(static_cast<Wide>(x[i]) / static_cast<Wide>(divisor));
  }
}

}  // namespace

ReducePair find_reduce_pair(DataType type, ReduceKind kind) noexcept {
  if (type == DataType::kFloat8e4m3) {
    return find_float8<DataType::kFloat8e4m3>(kind);
  }
  if (type == DataType::kFloat8e5m2) {
    return find_float8<DataType::kFloat8e5m2>(kind);
  }
  return HWY_DYNAMIC_DISPATCH(find_reduce)(type, kind);
}

void scale(
    void* target, const void* source, size_t count, DataType type, uint64_t scalar_bits) noexcept {
  switch (type) {
    case DataType::kInt8:
      return scale_native<int8_t>(target, source, count, scalar_bits);
    case DataType::kUint8:
      return scale_native<uint8_t>(target, source, count, scalar_bits);
    case DataType::kInt32:
      return scale_native<int32_t>(target, source, count, scalar_bits);
    case DataType::kUint32:
      return scale_native<uint32_t>(target, source, count, scalar_bits);
    case DataType::kInt64:
      return scale_native<int64_t>(target, source, count, scalar_bits);
    case DataType::kUint64:
      return scale_native<uint64_t>(target, source, count, scalar_bits);
    case DataType::kFloat32:
      return scale_native<float>(target, source, count, scalar_bits);
    case DataType::kFloat64:
      return scale_native<double>(target, source, count, scalar_bits);
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return scale_16bit(target, source, count, type, static_cast<uint16_t>(scalar_bits));
    case DataType::kFloat8e4m3:
    case DataType::kFloat8e5m2:
      return scale_float8(target, source, count, format_of(type),
                          static_cast<uint8_t>(scalar_bits));
  }
}

void divide(
    void* target, const void* source, size_t count, DataType type, uint32_t divisor) noexcept {
  switch (type) {
    case DataType::kInt8:
      return divide_native<int8_t>(target, source, count, divisor);
    case DataType::kUint8:
      return divide_native<uint8_t>(target, source, count, divisor);
    case DataType::kInt32:
      return divide_native<int32_t>(target, source, count, divisor);
    case DataType::kUint32:
      return divide_native<uint32_t>(target, source, count, divisor);
    case DataType::kInt64:
      return divide_native<int64_t>(target, source, count, divisor);
    case DataType::kUint64:
      return divide_native<uint64_t>(target, source, count, divisor);
    default:
      copy(target, source, count * element_size(type));
  }
}

namespace {

/// An element is infinite or NaN if all of these bits are set; 0: the type has no such values.
uint64_t exponent_of(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return 0x7c00;
    case DataType::kFloat32:
      return 0x7f800000;
    case DataType::kFloat64:
      return 0x7ff0000000000000;
    case DataType::kBfloat16:
      return 0x7f80;
    case DataType::kFloat8e4m3:
      return 0x7f;  // has no infinity: one NaN of either sign
    case DataType::kFloat8e5m2:
      return 0x7c;
    default:
      return 0;
  }
}

/// Of elements of which some are so.
NotFinite count_not_finite(const std::byte* data, size_t count, DataType type) {
  const size_t size_bytes = element_size(type);
  const uint64_t exponent = exponent_of(type);
  const uint64_t mantissa = (exponent & -exponent) - 1;
  NotFinite found;
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits = 0;  // the low bytes, as in ReduceOp::scalar_bits
    std::memcpy(&bits, data + i * size_bytes, size_bytes);
    if ((bits & exponent) == exponent && found.count++ == 0) {
      found.first = i;
      found.is_nan = (bits & mantissa) != 0 || type == DataType::kFloat8e4m3;
    }
  }
  return found;
}

}  // namespace

NotFinite find_not_finite(const void* data, size_t count, DataType type) noexcept {
  const uint64_t exponent = exponent_of(type);
  const bool has_some = exponent != 0 && HWY_DYNAMIC_DISPATCH(has_not_finite_bits)(
                                             data, count, element_size(type), exponent);
  return has_some ? count_not_finite(static_cast<const std::byte*>(data), count, type)
                  : NotFinite{};
}

void copy(void* target, const void* source, size_t size_bytes) noexcept {
  if (size_bytes > 0) {  // an empty message may have a null address
    std::memcpy(target, source, size_bytes);
  }
}

void copy_streaming(void* target, const void* source, size_t size_bytes) noexcept {
  HWY_DYNAMIC_DISPATCH(stream_bytes)(target, source, size_bytes);
}

}  // namespace plexus
#endif  // HWY_ONCE
