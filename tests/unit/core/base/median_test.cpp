// SPDX-License-Identifier: Apache-2.0
#include "core/base/median.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

TEST(Median, IsTheMiddleValueAndOfTwoTheUpper) {
  EXPECT_EQ(median(std::vector<double>{7}), 7);
  EXPECT_EQ(median(std::vector<double>{30, 1, 2}), 2);
  EXPECT_EQ(median(std::vector<int>{4, 1, 30, 2}), 4);
}

}  // namespace
}  // namespace plexus
