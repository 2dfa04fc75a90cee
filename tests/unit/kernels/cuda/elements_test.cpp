// SPDX-License-Identifier: Apache-2.0
// The device's arithmetic compared bit by bit with the host's.
#include "kernels/cuda/elements.hpp"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/host/reduce.hpp"
#include "tests/support/all_types.hpp"

namespace plexus {
namespace {

constexpr uint32_t kValues = 256;

template <class Format>
void expect_conversions(SmallFloat format) {
  for (uint32_t bits = 0; bits < kValues; ++bits) {
    EXPECT_EQ(std::bit_cast<uint32_t>(Format::to_float(bits)),
              std::bit_cast<uint32_t>(widen(format, bits)))
        << bits;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 2'000'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    ASSERT_EQ(Format::from_float(value), narrow(format, value)) << std::bit_cast<uint32_t>(value);
  }
  // All floats with few bits, including the ties of every exponent.
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint32_t low : {0U, 1U, 0xffffU}) {
      const auto value = std::bit_cast<float>(high << 16 | low);
      ASSERT_EQ(Format::from_float(value), narrow(format, value)) << high << " " << low;
    }
  }
}

TEST(DeviceElements, E4m3ConvertsAsTheReferenceDoes) {
  expect_conversions<Float8<4, 3, false>>(kE4m3);
}
TEST(DeviceElements, E5m2ConvertsAsTheReferenceDoes) {
  expect_conversions<Float8<5, 2, true>>(kE5m2);
}

/// Units of random bits, and of special values.
template <class Bits>
std::vector<uint64_t> make_units(uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> units(20'000);
  for (uint64_t& unit : units) {
    unit = random();
    const uint64_t kind = random() % 8;
    if (kind == 0) {
      unit &= 0x8000800080008000U;  // zeros, of both signs in half
    } else if (kind == 1) {
      unit |= 0x7f807f807f807f80U;  // infinities and NaN
    } else if (kind == 2) {
      unit = static_cast<uint64_t>(std::bit_cast<uint32_t>(-1.5F)) << 32 | 0x7f800000U;
    } else if (kind == 3) {
      unit = std::bit_cast<uint64_t>(-3.25);
    }
  }
  return units;
}

template <DataType type>
bool is_nan(typename Element<type>::Bits bits) {
  if constexpr (!is_floating(type)) {
    return false;
  } else if constexpr (type == DataType::kFloat64) {
    return std::isnan(std::bit_cast<double>(bits));
  } else if constexpr (type == DataType::kFloat32) {
    return std::isnan(std::bit_cast<float>(bits));
  } else if constexpr (type == DataType::kBfloat16) {
    return std::isnan(widen_bfloat16(bits));
  } else if constexpr (type == DataType::kFloat16) {
    return std::isnan(widen(kHalf, bits));
  } else {
    return std::isnan(widen(type == DataType::kFloat8e4m3 ? kE4m3 : kE5m2, bits));
  }
}

/// Equal bits; of two NaNs either may be the result, because a host compiler may swap operands.
template <DataType type, ReduceKind kind>
void expect_reduction() {
  using Bits = typename Element<type>::Bits;
  constexpr size_t kPerUnit = kUnitBytes / sizeof(Bits);
  const std::vector<uint64_t> a = make_units<Bits>(1);
  const std::vector<uint64_t> b = make_units<Bits>(2);
  std::vector<uint64_t> wanted(a.size());
  find_reduce_pair(type, kind)(wanted.data(), a.data(), b.data(), a.size() * kPerUnit);
  for (size_t i = 0; i < a.size(); ++i) {
    const uint64_t made = Combining<type, kind>::combine(a[i], b[i]);
    if (made == wanted[i]) {
      continue;
    }
    for (size_t at = 0; at < kUnitBytes * 8; at += sizeof(Bits) * 8) {
      const auto element = [at](uint64_t unit) { return static_cast<Bits>(unit >> at); };
      if (is_nan<type>(element(a[i])) && is_nan<type>(element(b[i]))) {
        ASSERT_TRUE(is_nan<type>(element(made)) && is_nan<type>(element(wanted[i])));
      } else {
        ASSERT_EQ(element(made), element(wanted[i])) << std::hex << a[i] << " " << b[i];
      }
    }
  }
}

template <DataType type>
void expect_scaling() {
  using Bits = typename Element<type>::Bits;
  const std::vector<uint64_t> a = make_units<Bits>(3);
  std::vector<uint64_t> wanted(a.size());
  for (const uint64_t scalar : {ReduceOp::scalar_bits_of(type, 1.0 / 3), uint64_t{3}}) {
    scale(wanted.data(), a.data(), a.size() * kUnitBytes / sizeof(Bits), type, scalar);
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(ExtendedSum<type>::scale(a[i], scalar), wanted[i]) << std::hex << a[i];
    }
  }
  divide(wanted.data(), a.data(), a.size() * kUnitBytes / sizeof(Bits), type, 7);
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(ExtendedSum<type>::divide(a[i], 7), wanted[i]) << std::hex << a[i];
  }
}

template <class Type>
struct DeviceArithmetic : testing::Test {};
TYPED_TEST_SUITE(DeviceArithmetic, AllTypes, TypeNames);

TYPED_TEST(DeviceArithmetic, SumsHaveTheHostsBits) {
  expect_reduction<TypeParam::value, ReduceKind::kSum>();
}
TYPED_TEST(DeviceArithmetic, ProductsHaveTheHostsBits) {
  expect_reduction<TypeParam::value, ReduceKind::kProd>();
}
TYPED_TEST(DeviceArithmetic, MaximaHaveTheHostsBits) {
  expect_reduction<TypeParam::value, ReduceKind::kMax>();
}
TYPED_TEST(DeviceArithmetic, MinimaHaveTheHostsBits) {
  expect_reduction<TypeParam::value, ReduceKind::kMin>();
}
TYPED_TEST(DeviceArithmetic, ScaledAndDividedValuesHaveTheHostsBits) {
  expect_scaling<TypeParam::value>();
}

}  // namespace
}  // namespace plexus
