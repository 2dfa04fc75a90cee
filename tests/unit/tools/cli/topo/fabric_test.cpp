// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/topo/fabric.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::testing {
namespace {

using ::testing::HasSubstr;

const Fabric& fabric() {
  static const Fabric kFabric =
      Fabric::parse(
          "dc east rail-optimised nodes=4 rails=2 leaf=2 spines=1 gbit_per_s=80\n"
          "dc west torus size=4 gbit_per_s=80\n"
          "dc alone torus size=1 gbit_per_s=80\n"
          "between east west gbit_per_s=8 latency_us=2500")
          .value();
  return kFabric;
}

TEST(FabricText, SaysWhatThereIs) {
  const std::string text = format_fabric(fabric());
  EXPECT_THAT(text, HasSubstr("datacenter west: nodes 4 to 7"));
  EXPECT_THAT(text, HasSubstr("9 nodes with 1 NIC each"));
}

TEST(FabricText, RouteNamesEveryVertexLatencyAndSpeed) {
  const std::string text = format_route(fabric(), {.node = 0}, {.node = 5});
  EXPECT_THAT(text, HasSubstr("2503 us, 1 GB/s alone"));
  EXPECT_THAT(text, HasSubstr("east border > west border: 1 x 8 Gbit/s"));
  EXPECT_THAT(format_route(fabric(), {.node = 0}, {.node = 8}), HasSubstr("no route"));
}

TEST(FabricText, ShiftNamesTheBusiestLink) {
  const Fabric ring = Fabric::parse("dc a torus size=6 gbit_per_s=80").value();
  EXPECT_THAT(format_shift(ring, 2), HasSubstr("slowest 5 GB/s"));
  EXPECT_THAT(format_shift(ring, 2), HasSubstr("most flows on one link: 2 (node "));
  EXPECT_THAT(format_shift(ring, 6), HasSubstr("sends to itself"));
}

TEST(FabricText, PortIsANodeOrANodeAndItsRail) {
  const Fabric rails =
      Fabric::parse("dc a rail-optimised nodes=4 rails=2 leaf=2 spines=1 gbit_per_s=80").value();
  EXPECT_EQ(parse_port("3:1", rails).value(), (FabricPort{.node = 3, .rail = 1}));
  EXPECT_EQ(parse_port("2", rails).value(), (FabricPort{.node = 2, .rail = 0}));
  for (const char* const wrong : {"", "4", "3:2", "3:", ":1", "-1", "x", "1:1:1"}) {
    EXPECT_FALSE(parse_port(wrong, rails)) << wrong;
  }
}

}  // namespace
}  // namespace plexus::testing
