// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/collnet_data.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "plugin-api/plexus_collnet.h"

namespace plexus::conformance {
namespace {

struct Kind {
  const char* name;
  uint32_t bytes;
  bool is_signed;
  int exponent_bits;  // 0: an integer
  int mantissa_bits;
};
constexpr Kind kKinds[] = {
    {"int8", 1, true, 0, 0},     {"uint8", 1, false, 0, 0},     {"int32", 4, true, 0, 0},
    {"uint32", 4, false, 0, 0},  {"int64", 8, true, 0, 0},      {"uint64", 8, false, 0, 0},
    {"float16", 2, true, 5, 10}, {"float32", 4, true, 8, 23},   {"float64", 8, true, 11, 52},
    {"bfloat16", 2, true, 8, 7}, {"float8e4m3", 1, true, 4, 3}, {"float8e5m2", 1, true, 5, 2},
};
constexpr const char* kOps[] = {"sum", "prod", "max", "min"};

bool is_known(int32_t type) { return type >= 0 && static_cast<size_t>(type) < std::size(kKinds); }

/// Mixes the element's coordinates; equal results everywhere.
uint64_t mix(uint64_t index, uint32_t member, uint32_t salt) {
  uint64_t x = index * 0x9E37'79B9'7F4A'7C15U + member * 0xBF58'476D'1CE4'E5B9U + salt;
  x ^= x >> 31U;
  x *= 0x94D0'49BB'1331'11EBU;
  return x ^ x >> 29U;
}

/// -2..2; for a product -2, -1, 1 or 2: every type can represent all partial results.
int64_t small_value(uint64_t bits, int32_t op) {
  if (op == PLEXUS_REDUCE_PROD) {
    return (bits & 1U) != 0 ? ((bits & 2U) != 0 ? 2 : -2) : ((bits & 2U) != 0 ? 1 : -1);
  }
  return static_cast<int64_t>(bits % 5) - 2;
}

/// The bits of an integer as a float of this format. Exact for all values used here.
uint64_t float_bits(int64_t value, const Kind& kind) {
  if (value == 0) {
    return 0;
  }
  const auto magnitude = static_cast<uint64_t>(value < 0 ? -value : value);
  const int exponent = static_cast<int>(std::bit_width(magnitude)) - 1;
  const uint64_t fraction = magnitude - (uint64_t{1} << exponent);
  const uint64_t mantissa = (fraction << kind.mantissa_bits) >> exponent;
  const int bias = (1 << (kind.exponent_bits - 1)) - 1;
  const uint64_t sign = value < 0 ? 1 : 0;
  return sign << (kind.exponent_bits + kind.mantissa_bits) |
         static_cast<uint64_t>(exponent + bias) << kind.mantissa_bits | mantissa;
}

/// As 64 bits with sign extension.
uint64_t widen(uint64_t bits, const Kind& kind) {
  const uint32_t unused = 64 - 8 * kind.bytes;
  return kind.is_signed ? static_cast<uint64_t>(static_cast<int64_t>(bits << unused) >> unused)
                        : bits << unused >> unused;
}

uint64_t value_of(const CollnetData& data, uint64_t index, uint32_t member) {
  const Kind& kind = kKinds[data.type];
  const uint64_t bits = mix(index, member, data.salt);
  return kind.exponent_bits == 0 ? widen(bits, kind)
                                 : static_cast<uint64_t>(small_value(bits, data.op));
}

uint64_t combine(int32_t op, uint64_t a, uint64_t b, bool is_signed) {
  const bool is_less = is_signed ? static_cast<int64_t>(a) < static_cast<int64_t>(b) : a < b;
  switch (op) {
    case PLEXUS_REDUCE_SUM:
      return a + b;
    case PLEXUS_REDUCE_PROD:
      return a * b;
    case PLEXUS_REDUCE_MAX:
      return is_less ? b : a;
    default:
      return is_less ? a : b;
  }
}

template <class Value>
std::vector<std::byte> store(const CollnetData& data, const Value& value_at) {
  const Kind& kind = kKinds[data.type];
  std::vector<std::byte> bytes(data.count * kind.bytes);
  for (uint64_t i = 0; i < data.count; ++i) {
    const uint64_t value = value_at(i);
    const uint64_t bits =
        kind.exponent_bits == 0 ? value : float_bits(static_cast<int64_t>(value), kind);
    std::memcpy(bytes.data() + i * kind.bytes, &bits, kind.bytes);  // little-endian
  }
  return bytes;
}

}  // namespace

size_t collnet_element_bytes(int32_t type) { return is_known(type) ? kKinds[type].bytes : 0; }

const char* collnet_type_name(int32_t type) { return is_known(type) ? kKinds[type].name : "?"; }

const char* collnet_op_name(int32_t op) {
  return op >= 0 && static_cast<size_t>(op) < std::size(kOps) ? kOps[op] : "?";
}

std::vector<std::byte> make_part(const CollnetData& data, uint32_t member) {
  return store(data, [&](uint64_t i) { return value_of(data, i, member); });
}

std::vector<std::byte> make_result(const CollnetData& data, uint32_t members) {
  const Kind& kind = kKinds[data.type];
  return store(data, [&](uint64_t i) {
    uint64_t value = value_of(data, i, 0);
    for (uint32_t member = 1; member < members; ++member) {
      value = combine(data.op, value, value_of(data, i, member), kind.is_signed);
      value = kind.exponent_bits == 0 ? widen(value, kind) : value;
    }
    return value;
  });
}

}  // namespace plexus::conformance
