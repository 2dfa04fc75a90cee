// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/small_float.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace plexus::perf {
namespace {

template <class Format>
class SmallFloatTest : public ::testing::Test {};
using Formats = ::testing::Types<Half, Bfloat16, Float8e4m3, Float8e5m2>;
TYPED_TEST_SUITE(SmallFloatTest, Formats);

TYPED_TEST(SmallFloatTest, EveryNumberSurvivesTheWayThroughFloat) {
  for (uint32_t bits = 0; bits < 2 * TypeParam::kSign; ++bits) {
    const float value = TypeParam::to_float(static_cast<typename TypeParam::Bits>(bits));
    if (!std::isnan(value)) {
      ASSERT_EQ(TypeParam::from_float(value), bits);
    }
  }
}

TYPED_TEST(SmallFloatTest, NanStaysNan) {
  EXPECT_TRUE(std::isnan(TypeParam::to_float(TypeParam::from_float(std::nanf("")))));
}

TYPED_TEST(SmallFloatTest, HalfwayGoesToTheEvenNeighbour) {
  for (uint32_t bits = 0; bits < TypeParam::kLargest; ++bits) {
    const float low = TypeParam::to_float(static_cast<typename TypeParam::Bits>(bits));
    const float high = TypeParam::to_float(static_cast<typename TypeParam::Bits>(bits + 1));
    const float middle = low + (high - low) / 2;
    if (middle == low || middle == high) {
      continue;  // float itself has nothing between them
    }
    ASSERT_EQ(TypeParam::from_float(middle), bits + (bits & 1U)) << bits;
    ASSERT_EQ(TypeParam::from_float(std::nextafter(middle, low)), bits);
    ASSERT_EQ(TypeParam::from_float(std::nextafter(middle, high)), bits + 1);
    ASSERT_EQ(TypeParam::from_float(-middle), TypeParam::kSign | (bits + (bits & 1U)));
  }
}

TEST(Half, HasTheKnownBits) {
  EXPECT_EQ(Half::from_float(1.0F), 0x3c00);
  EXPECT_EQ(Half::from_float(-2.0F), 0xc000);
  EXPECT_EQ(Half::from_float(65504.0F), 0x7bff);
  EXPECT_EQ(Half::from_float(65520.0F), 0x7c00);  // infinity
  EXPECT_EQ(Half::from_float(5.9604645e-8F), 0x0001);
}

TEST(Bfloat16, HasTheKnownBits) {
  EXPECT_EQ(Bfloat16::from_float(1.0F), 0x3f80);
  EXPECT_EQ(Bfloat16::from_float(-3.0F), 0xc040);
}

TEST(Float8e4m3, HasTheKnownBitsAndSaturates) {
  EXPECT_EQ(Float8e4m3::from_float(1.0F), 0x38);
  EXPECT_EQ(Float8e4m3::from_float(448.0F), 0x7e);
  EXPECT_EQ(Float8e4m3::from_float(1e6F), 0x7e);
  EXPECT_EQ(Float8e4m3::from_float(0.001953125F), 0x01);
}

TEST(Float8e5m2, HasTheKnownBits) {
  EXPECT_EQ(Float8e5m2::from_float(1.0F), 0x3c);
  EXPECT_EQ(Float8e5m2::from_float(57344.0F), 0x7b);
}

}  // namespace
}  // namespace plexus::perf
