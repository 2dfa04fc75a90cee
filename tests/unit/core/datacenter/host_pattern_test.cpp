// SPDX-License-Identifier: Apache-2.0
// Names that patterns of the fabric file match.
#include "core/datacenter/host_pattern.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

bool matches(const char* pattern, const char* name) {
  return HostPattern::parse(pattern).value().matches(name);
}

TEST(HostPattern, NumbersAreWrittenAsTheRangeIs) {
  EXPECT_TRUE(matches("n[1-20]", "n7"));
  EXPECT_FALSE(matches("n[1-20]", "n07")) << "no zeros where the range has none";
  EXPECT_TRUE(matches("n[01-20]", "n07"));
  EXPECT_FALSE(matches("n[01-20]", "n7"));
  EXPECT_TRUE(matches("n[01-120]", "n100"));
  EXPECT_FALSE(matches("n[01-120]", "n007"));
}

TEST(HostPattern, RangesHaveEnds) {
  EXPECT_FALSE(matches("n[2-4]", "n1"));
  EXPECT_TRUE(matches("n[2-4]", "n2"));
  EXPECT_TRUE(matches("n[2-4]", "n4"));
  EXPECT_FALSE(matches("n[2-4]", "n5"));
  EXPECT_TRUE(matches("n[2,9]x", "n9x"));
  EXPECT_FALSE(matches("n[2,9]x", "n9"));
}

TEST(HostPattern, StarsAndQuestionMarks) {
  EXPECT_TRUE(matches("gpu*", "gpu"));
  EXPECT_TRUE(matches("g?u[1-2]*", "gpu1.site"));
  EXPECT_FALSE(matches("g?u", "gu"));
}

TEST(HostPattern, IsBounded) {
  const auto is_taken = [](const std::string& text) {
    return HostPattern::parse(text).has_value();
  };
  std::string list = "[";
  while (list.size() < (64U << 10) - 3) {
    list += "1,";
  }
  EXPECT_TRUE(is_taken(list + "11]")) << "64 KiB";
  EXPECT_FALSE(is_taken(list + "111]"));
  EXPECT_TRUE(is_taken(std::string(256, '?')));
  EXPECT_FALSE(is_taken(std::string(257, '?')));
  EXPECT_TRUE(is_taken("n[" + std::string(18, '9') + "]"));
  EXPECT_FALSE(is_taken("n[" + std::string(19, '9') + "]"));
  EXPECT_FALSE(is_taken(""));
  EXPECT_TRUE(matches("*", std::string(256, 'n').c_str()));
  EXPECT_FALSE(matches("*", std::string(257, 'n').c_str()));
}

}  // namespace
}  // namespace plexus
