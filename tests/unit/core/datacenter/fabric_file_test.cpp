// SPDX-License-Identifier: Apache-2.0
#include "core/datacenter/fabric_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::testing {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string_view text) {
  const auto file = parse_fabric_file(text);
  return file ? "no error" : file.error().message();
}

TEST(FabricFile, FirstFittingLineDecides) {
  const FabricFile file = parse_fabric_file(R"(# comment
host node[01-16] dc berlin   # with a comment
host node* device mlx5_1 dc paris rail 1
host node* dc paris rail 0
link berlin paris gbit 100 ms 2.5 cost 7
)")
                              .value();
  EXPECT_EQ(*file.datacenter_of("node07"), "berlin");
  EXPECT_EQ(*file.datacenter_of("node17"), "paris");
  EXPECT_EQ(*file.datacenter_of("node7"), "paris");  // written with two digits
  EXPECT_EQ(file.datacenter_of("other"), nullptr);
  EXPECT_EQ(file.rail_of("node20", "mlx5_1"), 1);
  EXPECT_EQ(file.rail_of("node20", "eth0"), 0);
  EXPECT_EQ(file.rail_of("node01", "eth0"), std::nullopt);
  const Location location = file.location_of("node20");
  ASSERT_EQ(location.links.size(), 1U);
  EXPECT_EQ(location.links[0].to, "berlin");
  EXPECT_EQ(location.links[0].path.mbit_per_s, 100'000U);
  EXPECT_EQ(location.links[0].path.latency_ns, 2'500'000U);
  EXPECT_EQ(location.links[0].path.cost, 7U);
}

TEST(FabricFile, WithoutLinksAllDatacentersAreJoinedByUnknownPaths) {
  const FabricFile file = parse_fabric_file("host a dc x\nhost b dc y\nhost c dc z").value();
  const Location location = file.location_of("b");
  ASSERT_EQ(location.links.size(), 2U);
  EXPECT_TRUE(location.links[0].path.connected);
  EXPECT_EQ(location.links[0].path.latency_ns, std::nullopt);
}

TEST(FabricFile, ErrorsNameTheLineAndWhatIsWrong) {
  EXPECT_THAT(error_of("host a dc x\nhots b dc y"), HasSubstr("line 2: a line must begin with"));
  EXPECT_THAT(error_of("host a"), HasSubstr("line 1: 'dc NAME' is missing"));
  EXPECT_THAT(error_of("host a[1-x] dc y"), HasSubstr("'1-x' is not a range"));
  EXPECT_THAT(error_of("host a[9-2] dc y"), HasSubstr("'9-2' is not a range"));
  EXPECT_THAT(error_of("host a[1 dc y"), HasSubstr("'[' without ']'"));
  EXPECT_THAT(error_of("host a dc b/c"), HasSubstr("not a valid name of a datacenter"));
  EXPECT_THAT(error_of("host a dc x dc y"), HasSubstr("'dc' is given twice"));
  EXPECT_THAT(error_of("host a dc x rail 1.5"), HasSubstr("whole number"));
  EXPECT_THAT(error_of("host a dc x colour red"),
              HasSubstr("unknown keyword 'colour' in a host line"));
  EXPECT_THAT(error_of("host a dc x\nlink x x"), HasSubstr("with itself"));
  EXPECT_THAT(error_of("host a dc x\nlink x y"), HasSubstr("'y', which no host line defines"));
  EXPECT_THAT(error_of("host a dc x\nhost b dc y\nlink x y ms -1"),
              HasSubstr("line 3: ms must be"));
  EXPECT_THAT(error_of("host a dc x\nhost b dc y\nlink x y gbit nan"), HasSubstr("gbit must be"));
  EXPECT_THAT(error_of("host a dc x\nhost b dc y\nlink x y\nlink y x"),
              HasSubstr("line 4: the link from"));
}

TEST(HostPattern, StarsDoNotExplode) {
  std::string pattern;
  for (int i = 0; i < 100; ++i) {
    pattern += "*a";
  }
  const HostPattern parsed = HostPattern::parse(pattern).value();
  EXPECT_TRUE(parsed.matches(std::string(200, 'a')));
  EXPECT_FALSE(parsed.matches(std::string(200, 'b')));
  EXPECT_FALSE(parsed.matches(std::string(99, 'a')));
}

/// As Slurm: zeros fill a number up to the digits of the lower bound.
TEST(HostPattern, NumbersAreAtLeastAsWideAsTheLowerBound) {
  const auto matches = [](std::string_view pattern, std::string_view name) {
    return HostPattern::parse(pattern).value().matches(name);
  };
  EXPECT_TRUE(matches("a[0-15]", "a0"));
  EXPECT_TRUE(matches("a[0-15]", "a15"));
  EXPECT_FALSE(matches("a[0-15]", "a05"));
  EXPECT_TRUE(matches("a[08-120]", "a08"));
  EXPECT_TRUE(matches("a[08-120]", "a119"));
  EXPECT_FALSE(matches("a[08-120]", "a8"));
  EXPECT_FALSE(matches("a[08-120]", "a0119"));
  EXPECT_TRUE(matches("a[0000000001-0000000010]", "a0000000002"));
}

TEST(HostPattern, ListsOfNumbersMayBeLong) {
  std::string pattern = "a[0";
  for (int number = 2; number < 2000; number += 2) {
    pattern += "," + std::to_string(number);
  }
  const HostPattern parsed = HostPattern::parse(pattern + "]").value();
  EXPECT_TRUE(parsed.matches("a1998"));
  EXPECT_FALSE(parsed.matches("a1997"));
  EXPECT_FALSE(HostPattern::parse(std::string(300, 'a')).has_value());
}

}  // namespace
}  // namespace plexus::testing
