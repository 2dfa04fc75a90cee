// SPDX-License-Identifier: Apache-2.0
// Every type and operation compared with independent arithmetic, at counts around every vector
// width, in place, misaligned, and with special values.
#include "kernels/host/reduce.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace plexus {
namespace {

constexpr DataType kTypes[] = {DataType::kInt8,     DataType::kUint8,      DataType::kInt32,
                               DataType::kUint32,   DataType::kInt64,      DataType::kUint64,
                               DataType::kFloat16,  DataType::kFloat32,    DataType::kFloat64,
                               DataType::kBfloat16, DataType::kFloat8e4m3, DataType::kFloat8e5m2};
constexpr ReduceKind kKinds[] = {ReduceKind::kSum, ReduceKind::kProd, ReduceKind::kMax,
                                 ReduceKind::kMin};

// ---- an independent model: small floats by searching all their values in double arithmetic ----

struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
};

double small_value(Format format, unsigned bits) {
  const unsigned mantissa = bits & ((1U << format.mantissa_bits) - 1);
  const unsigned exponent = (bits >> format.mantissa_bits) & ((1U << format.exponent_bits) - 1);
  const unsigned top = (1U << format.exponent_bits) - 1;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const double sign = (bits >> (format.exponent_bits + format.mantissa_bits)) != 0 ? -1 : 1;
  const double scale = std::ldexp(1.0, -format.mantissa_bits);
  if (exponent == top && format.has_infinity) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (exponent == top && mantissa == (1U << format.mantissa_bits) - 1) {
    return std::nan("");
  }
  return exponent == 0 ? sign * std::ldexp(mantissa * scale, 1 - bias)
                       : sign * std::ldexp(1 + mantissa * scale, static_cast<int>(exponent) - bias);
}

/// Nearest value, ties to even mantissa. `saturates`: beyond the range is the largest finite value.
unsigned round_small(Format format, double value, bool saturates) {
  const unsigned sign =
      std::signbit(value) ? 1U << (format.exponent_bits + format.mantissa_bits) : 0;
  const double magnitude = std::fabs(value);
  const unsigned count = 1U << (format.exponent_bits + format.mantissa_bits);
  unsigned largest = 0;
  for (unsigned bits = 0; bits < count; ++bits) {
    if (std::isfinite(small_value(format, bits))) {
      largest = bits;
    }
  }
  // With a longer exponent range there would be a next value, which limits what rounds to the
  // largest.
  const double step = small_value(format, largest) - small_value(format, largest - 1);
  if (magnitude >= small_value(format, largest) + step / 2) {
    return sign | (saturates ? largest : largest + 1);
  }
  unsigned low = 0;
  unsigned high = largest;
  while (low < high) {  // finds the last value that is not above
    const unsigned middle = (low + high + 1) / 2;
    (small_value(format, middle) <= magnitude ? low : high) =
        small_value(format, middle) <= magnitude ? middle : middle - 1;
  }
  if (low == largest) {
    return sign | low;
  }
  const double below = magnitude - small_value(format, low);
  const double above = small_value(format, low + 1) - magnitude;
  const bool up = above < below || (above == below && (low & 1) != 0);
  return sign | (up ? low + 1 : low);
}

constexpr Format kHalfFormat{5, 10, true};
constexpr Format kE4m3Format{4, 3, false};
constexpr Format kE5m2Format{5, 2, true};

float bfloat16_value(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

TEST(SmallFloat, WidensEveryBitPatternExactly) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const double expected = small_value(kHalfFormat, bits);
    const float actual = widen(kHalf, bits);
    EXPECT_TRUE(std::isnan(expected) ? std::isnan(actual) : static_cast<double>(actual) == expected)
        << bits;
  }
  for (unsigned bits = 0; bits < 256; ++bits) {
    const double e4m3 = small_value(kE4m3Format, bits);
    const double e5m2 = small_value(kE5m2Format, bits);
    EXPECT_TRUE(std::isnan(e4m3) ? std::isnan(widen(kE4m3, bits)) : widen(kE4m3, bits) == e4m3)
        << bits;
    EXPECT_TRUE(std::isnan(e5m2) ? std::isnan(widen(kE5m2, bits)) : widen(kE5m2, bits) == e5m2)
        << bits;
  }
}

TEST(SmallFloat, NarrowingUndoesWidening) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    if (!std::isnan(widen(kHalf, bits))) {
      EXPECT_EQ(narrow(kHalf, widen(kHalf, bits)), bits);
    }
    if (!std::isnan(widen_bfloat16(static_cast<uint16_t>(bits)))) {
      EXPECT_EQ(narrow_bfloat16(widen_bfloat16(static_cast<uint16_t>(bits))), bits);
    }
  }
}

TEST(SmallFloat, NarrowsToNearestEven) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    const float value = std::ldexp(static_cast<float>(random()) / 4294967296.0F - 0.5F,
                                   static_cast<int>(random() % 44) - 24);
    EXPECT_EQ(narrow(kE4m3, value), round_small(kE4m3Format, value, true)) << value;
    EXPECT_EQ(narrow(kE5m2, value), round_small(kE5m2Format, value, true)) << value;
  }
  // exactly between two halves: rounds to the even one
  for (unsigned bits = 0; bits < 0x7bff; ++bits) {
    const float between = (widen(kHalf, bits) + widen(kHalf, bits + 1)) / 2;
    EXPECT_EQ(narrow(kHalf, between), bits + (bits & 1)) << bits;
    EXPECT_EQ(narrow(kHalf, std::nextafter(between, 1e9F)), bits + 1) << bits;
    EXPECT_EQ(narrow(kHalf, std::nextafter(between, 0.0F)), bits) << bits;
  }
}

TEST(SmallFloat, KeepsRangeRulesOfEachFormat) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(narrow(kHalf, 65520.0F), 0x7c00U);  // rounds up to infinity
  EXPECT_EQ(narrow(kHalf, 65519.0F), 0x7bffU);
  EXPECT_EQ(narrow(kE4m3, infinity), 0x7eU);  // saturates: 448
  EXPECT_EQ(narrow(kE4m3, -1e9F), 0xfeU);
  EXPECT_EQ(narrow(kE5m2, 1e9F), 0x7bU);  // saturates: 57344
  EXPECT_EQ(narrow(kE4m3, std::nanf("")) & 0x7fU, 0x7fU);
  EXPECT_TRUE(std::isnan(widen(kHalf, narrow(kHalf, std::nanf("")))));
}

// ---- reductions ----

/// One element computed by the model, from and to raw bits.
uint64_t model(DataType type, ReduceKind kind, uint64_t a, uint64_t b);

template <class T>
T pick(ReduceKind kind, T a, T b) {
  return (kind == ReduceKind::kMax) == (a > b) ? a : b;
}

double model_float(ReduceKind kind, double a, double b) {
  switch (kind) {
    case ReduceKind::kSum:
      return a + b;
    case ReduceKind::kProd:
      return a * b;
    case ReduceKind::kMax:
      return std::fmax(a, b);
    default:
      return std::fmin(a, b);
  }
}

template <class T>
uint64_t model_integer(ReduceKind kind, uint64_t a, uint64_t b) {
  const auto x = static_cast<T>(a);
  const auto y = static_cast<T>(b);
  uint64_t bits = 0;
  switch (kind) {
    case ReduceKind::kSum:
      bits = a + b;
      break;
    case ReduceKind::kProd:
      bits = a * b;
      break;
    default:
      bits = static_cast<uint64_t>(pick(kind, x, y));
  }
  return sizeof(T) == 8 ? bits : bits & ((uint64_t{1} << (8 * sizeof(T))) - 1);
}

uint64_t model(DataType type, ReduceKind kind, uint64_t a, uint64_t b) {
  float single_a = 0;
  float single_b = 0;
  switch (type) {
    case DataType::kInt8:
      return model_integer<int8_t>(kind, a, b);
    case DataType::kUint8:
      return model_integer<uint8_t>(kind, a, b);
    case DataType::kInt32:
      return model_integer<int32_t>(kind, a, b);
    case DataType::kUint32:
      return model_integer<uint32_t>(kind, a, b);
    case DataType::kInt64:
      return model_integer<int64_t>(kind, a, b);
    case DataType::kUint64:
      return model_integer<uint64_t>(kind, a, b);
    case DataType::kFloat64:
      return std::bit_cast<uint64_t>(
          model_float(kind, std::bit_cast<double>(a), std::bit_cast<double>(b)));
    case DataType::kFloat32:
      single_a = std::bit_cast<float>(static_cast<uint32_t>(a));
      single_b = std::bit_cast<float>(static_cast<uint32_t>(b));
      return std::bit_cast<uint32_t>(static_cast<float>(model_float(kind, single_a, single_b)));
    case DataType::kBfloat16:
      single_a = bfloat16_value(static_cast<uint16_t>(a));
      single_b = bfloat16_value(static_cast<uint16_t>(b));
      return narrow_bfloat16(static_cast<float>(model_float(kind, single_a, single_b)));
    case DataType::kFloat16:
      return round_small(kHalfFormat,
                         model_float(kind, small_value(kHalfFormat, static_cast<unsigned>(a)),
                                     small_value(kHalfFormat, static_cast<unsigned>(b))),
                         false);
    case DataType::kFloat8e4m3:
      return round_small(kE4m3Format,
                         model_float(kind, small_value(kE4m3Format, static_cast<unsigned>(a)),
                                     small_value(kE4m3Format, static_cast<unsigned>(b))),
                         true);
    case DataType::kFloat8e5m2:
      return round_small(kE5m2Format,
                         model_float(kind, small_value(kE5m2Format, static_cast<unsigned>(a)),
                                     small_value(kE5m2Format, static_cast<unsigned>(b))),
                         true);
  }
  return 0;
}

/// Random bits, floating types finite and of moderate size, so that the double model is exact.
std::vector<std::byte> random_elements(DataType type, size_t count, std::mt19937_64& random) {
  std::vector<std::byte> bytes(count * element_size(type));
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits = random();
    const double value = (static_cast<double>(random() % 4001) - 2000) / 64;
    if (is_floating(type)) {
      bits = ReduceOp::scalar_bits_of(type, value);
    }
    std::memcpy(bytes.data() + i * element_size(type), &bits, element_size(type));
  }
  return bytes;
}

uint64_t element(DataType type, const std::vector<std::byte>& bytes, size_t index) {
  uint64_t bits = 0;
  std::memcpy(&bits, bytes.data() + index * element_size(type), element_size(type));
  return bits;
}

class ReducePairTest : public testing::TestWithParam<std::tuple<DataType, ReduceKind>> {};

TEST_P(ReducePairTest, MatchesModelAtEveryCountInPlaceAndMisaligned) {
  const auto [type, kind] = GetParam();
  const ReducePair reduce = find_reduce_pair(type, kind);
  ASSERT_NE(reduce, nullptr);
  std::mt19937_64 random(static_cast<uint64_t>(type) * 8 + static_cast<uint64_t>(kind));
  const size_t size = element_size(type);
  for (const size_t count : {0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 255, 257}) {
    const auto a = random_elements(type, count + 1, random);
    const auto b = random_elements(type, count + 1, random);
    std::vector<std::byte> target((count + 2) * size, std::byte{0x5a});
    reduce(target.data() + size, a.data() + size, b.data() + size,
           count);  // misaligned by an element
    auto in_place = a;
    reduce(in_place.data() + size, in_place.data() + size, b.data() + size, count);
    for (size_t i = 1; i <= count; ++i) {
      const uint64_t expected = model(type, kind, element(type, a, i), element(type, b, i));
      ASSERT_EQ(element(type, target, i), expected)
          << name(type) << " element " << i << " of " << count;
      ASSERT_EQ(element(type, in_place, i), expected) << name(type) << " in place";
    }
    ASSERT_EQ(target.front(), std::byte{0x5a});
    ASSERT_EQ(target.back(), std::byte{0x5a});
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypesAndOps,
                         ReducePairTest,
                         testing::Combine(testing::ValuesIn(kTypes), testing::ValuesIn(kKinds)));

TEST(ReducePair, MinAndMaxDropNan) {
  const float nan = std::nanf("");
  for (const ReduceKind kind : {ReduceKind::kMax, ReduceKind::kMin}) {
    for (size_t count : {1, 40}) {
      const std::vector<float> numbers(count, 3.0F);
      const std::vector<float> nans(count, nan);
      std::vector<float> out(count);
      const ReducePair reduce = find_reduce_pair(DataType::kFloat32, kind);
      reduce(out.data(), numbers.data(), nans.data(), count);
      EXPECT_EQ(out, numbers);
      reduce(out.data(), nans.data(), numbers.data(), count);
      EXPECT_EQ(out, numbers);
      reduce(out.data(), nans.data(), nans.data(), count);
      EXPECT_TRUE(std::isnan(out.back()));
    }
  }
  const std::vector<uint16_t> one(40, 0x3c00);
  const std::vector<uint16_t> half_nan(40, 0x7e00);
  std::vector<uint16_t> out(40);
  find_reduce_pair(DataType::kFloat16, ReduceKind::kMax)(out.data(), half_nan.data(), one.data(),
                                                         40);
  EXPECT_EQ(out, one);
}

TEST(ReducePair, NoneHasNoFunction) {
  EXPECT_EQ(find_reduce_pair(DataType::kFloat32, ReduceKind::kNone), nullptr);
}

TEST(Scale, RoundsOnceToTheType) {
  for (const DataType type : kTypes) {
    std::mt19937_64 random(3);
    const auto source = random_elements(type, 300, random);
    const uint64_t scalar = is_floating(type) ? ReduceOp::scalar_bits_of(type, 1.0 / 3) : 3;
    std::vector<std::byte> target(source.size());
    scale(target.data(), source.data(), 300, type, scalar);
    for (size_t i = 0; i < 300; ++i) {
      ASSERT_EQ(element(type, target, i),
                model(type, ReduceKind::kProd, element(type, source, i), scalar))
          << name(type);
    }
  }
}

TEST(Divide, TruncatesTowardsZero) {
  const int32_t source[] = {7, -7, 1, -1, 0, std::numeric_limits<int32_t>::min()};
  int32_t target[6];
  divide(target, source, 6, DataType::kInt32, 2);
  EXPECT_EQ(target[0], 3);
  EXPECT_EQ(target[1], -3);
  EXPECT_EQ(target[2], 0);
  EXPECT_EQ(target[3], 0);
  EXPECT_EQ(target[5], std::numeric_limits<int32_t>::min() / 2);
  const uint8_t bytes[] = {255, 200};
  uint8_t quotients[2];
  divide(quotients, bytes, 2, DataType::kUint8, 3);
  EXPECT_EQ(quotients[0], 85);
  EXPECT_EQ(quotients[1], 66);
}

/// A pattern of each kind, in the low bytes.
struct SpecialBits {
  DataType type;
  std::vector<uint64_t> nans;
  std::vector<uint64_t> infinities;
  std::vector<uint64_t> finite;  // the largest, and such with one bit less of the exponent
};

TEST(FindNotFinite, FindsEveryNanAndInfinityAtEveryPlaceAndNothingElse) {
  const SpecialBits kSpecial[] = {
      {DataType::kFloat16, {0x7c01, 0xffff}, {0x7c00, 0xfc00}, {0x7bff, 0xbc00, 0x03ff}},
      {DataType::kBfloat16, {0x7f81, 0xffff}, {0x7f80, 0xff80}, {0x7f7f, 0xbf80, 0x007f}},
      {DataType::kFloat32,
       {0x7f800001, 0xffffffff},
       {0x7f800000, 0xff800000},
       {0x7f7fffff, 0xbf800000}},
      {DataType::kFloat64,
       {0x7ff0000000000001, ~uint64_t{0}},
       {0x7ff0000000000000, 0xfff0000000000000},
       {0x7fefffffffffffff, 0xbff0000000000000}},
      {DataType::kFloat8e4m3, {0x7f, 0xff}, {}, {0x7e, 0xfe, 0x78}},
      {DataType::kFloat8e5m2, {0x7d, 0xff}, {0x7c, 0xfc}, {0x7b, 0xbc}}};
  constexpr size_t kCount = 150;
  for (const SpecialBits& each : kSpecial) {
    const size_t size_bytes = element_size(each.type);
    std::vector<uint8_t> bytes(kCount * size_bytes + 1);
    uint8_t* const data = bytes.data() + 1;  // misaligned
    const auto put = [&](size_t at, uint64_t bits) {
      std::memcpy(data + at * size_bytes, &bits, size_bytes);
    };
    for (size_t i = 0; i < kCount; ++i) {
      put(i, each.finite[i % each.finite.size()]);
    }
    EXPECT_EQ(find_not_finite(data, kCount, each.type).count, 0U) << name(each.type);
    for (const bool is_nan : {true, false}) {
      for (const uint64_t bits : is_nan ? each.nans : each.infinities) {
        for (size_t i = 0; i < kCount; ++i) {
          put(i, bits);
          const NotFinite found = find_not_finite(data, kCount, each.type);
          EXPECT_EQ(found.count, 1U) << name(each.type) << " " << bits;
          EXPECT_EQ(found.first, i);
          EXPECT_EQ(found.is_nan, is_nan);
          put(i, 0);
        }
      }
    }
    put(70, each.nans.front());
    put(90, each.nans.back());
    EXPECT_EQ(find_not_finite(data, kCount, each.type).count, 2U);
  }
  const std::vector<uint8_t> ones(64, 0xff);
  EXPECT_EQ(find_not_finite(ones.data(), 16, DataType::kInt32).count, 0U);
  EXPECT_EQ(find_not_finite(nullptr, 0, DataType::kFloat32).count, 0U);
}

TEST(CopyStreaming, CopiesAnyAlignmentAndLength) {
  std::vector<uint8_t> source(5000);
  for (size_t i = 0; i < source.size(); ++i) {
    source[i] = static_cast<uint8_t>(i * 7);
  }
  for (size_t offset : {0, 1, 63, 64}) {
    for (size_t size : {0, 1, 63, 64, 65, 1000, 4096}) {
      std::vector<uint8_t> target(5200, 0xee);
      copy_streaming(target.data() + offset, source.data() + 3, size);
      EXPECT_EQ(std::memcmp(target.data() + offset, source.data() + 3, size), 0);
      EXPECT_EQ(target[offset + size], 0xee);
    }
  }
}

}  // namespace
}  // namespace plexus
