// SPDX-License-Identifier: Apache-2.0
// Element types and reductions as values shared by host and device code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/layout/small_float.hpp"

namespace plexus {

/// The numbers of ncclDataType_t.
enum class DataType : uint8_t {
  kInt8 = 0,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBfloat16,
  kFloat8e4m3,
  kFloat8e5m2,
};
inline constexpr int kDataTypeCount = 12;

constexpr size_t element_size(DataType type) {
  constexpr size_t kSizes[kDataTypeCount] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kSizes[static_cast<int>(type)];
}

/// nccl-tests' spelling.
constexpr const char* name(DataType type) {
  constexpr const char* kNames[kDataTypeCount] = {"int8",   "uint8",    "int32",  "uint32",
                                                  "int64",  "uint64",   "half",   "float",
                                                  "double", "bfloat16", "f8e4m3", "f8e5m2"};
  return kNames[static_cast<int>(type)];
}

constexpr bool is_floating(DataType type) { return type >= DataType::kFloat16; }

/// How two elements are combined. The first four have the numbers of ncclRedOp_t.
enum class ReduceKind : uint8_t { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kNone = 255 };

/// A complete reduction: optionally multiply each rank's own input, combine pairwise, optionally
/// divide the result. Trivially copyable; equal fields mean the same reduction.
struct ReduceOp {
  ReduceKind kind = ReduceKind::kNone;
  bool scales = false;  // the own input is multiplied by `scalar_bits` when first read
  // the complete value is divided by `divisor` (integers, rounded towards zero)
  bool divides = false;
  uint32_t divisor = 1;
  uint64_t scalar_bits = 0;  // in the element type, low bytes

  [[nodiscard]] constexpr bool scales_input() const { return scales; }
  [[nodiscard]] constexpr bool divides_output() const { return divides; }

  static constexpr ReduceOp plain(ReduceKind kind) { return {.kind = kind}; }
  static constexpr ReduceOp premul_sum(uint64_t scalar_bits) {
    return {.kind = ReduceKind::kSum, .scales = true, .scalar_bits = scalar_bits};
  }
  /// Floating types: every rank multiplies by 1/nranks rounded to the type, then sums, so that a
  /// sum does not overflow half, as in NCCL. Integers: sum, then divide.
  static ReduceOp average(DataType type, uint32_t nranks) {
    if (!is_floating(type)) {
      return {.kind = ReduceKind::kSum, .divides = true, .divisor = nranks};
    }
    return premul_sum(scalar_bits_of(type, 1.0 / nranks));
  }
  /// `value` in a floating type.
  static uint64_t scalar_bits_of(DataType type, double value) {
    const auto single = static_cast<float>(value);
    switch (type) {
      case DataType::kFloat64:
        return std::bit_cast<uint64_t>(value);
      case DataType::kFloat32:
        return std::bit_cast<uint32_t>(single);
      case DataType::kFloat16:
        return narrow(kHalf, single);
      case DataType::kBfloat16:
        return narrow_bfloat16(single);
      case DataType::kFloat8e4m3:
        return narrow(kE4m3, single);
      case DataType::kFloat8e5m2:
        return narrow(kE5m2, single);
      default:
        return 0;
    }
  }
  /// Reads the multiplier from memory (`scalar`: one element of `type`).
  void load_scalar(const void* scalar, DataType type) {
    scalar_bits = 0;
    std::memcpy(&scalar_bits, scalar, element_size(type));
  }
  friend bool operator==(const ReduceOp&, const ReduceOp&) = default;
};

}  // namespace plexus
