// SPDX-License-Identifier: Apache-2.0
#include "tools/fabric/fabric.hpp"

#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Fabric make(std::string_view text) {
  Result<Fabric> fabric = Fabric::parse(text);
  EXPECT_TRUE(fabric) << fabric.error().message();
  return std::move(fabric).value();
}

std::string refusal(std::string_view text) {
  const Result<Fabric> fabric = Fabric::parse(text);
  return fabric ? "accepted" : std::string(fabric.error().message());
}

std::vector<int> links_between(const Fabric& fabric, FabricPort from, FabricPort to) {
  return fabric.route(from, to).value_or(std::vector<int>{});
}

size_t hops(const Fabric& fabric, int from, int to) {
  const auto route = fabric.route({.node = from}, {.node = to});
  EXPECT_TRUE(route.has_value());
  return route->size();
}

std::vector<std::string> names(const Fabric& fabric, FabricPort from, FabricPort to) {
  std::vector<std::string> all;
  for (const int link : links_between(fabric, from, to)) {
    all.push_back(fabric.vertex_name(fabric.links()[static_cast<size_t>(link)].to));
  }
  return all;
}

/// For every pair of ports: consecutive links from one port to the other, no vertex twice.
void expect_routes(const Fabric& fabric) {
  const int ports = fabric.nodes() * fabric.rails();
  const auto port = [&](int at) {
    return FabricPort{.node = at / fabric.rails(), .rail = at % fabric.rails()};
  };
  for (int from = 0; from < ports; ++from) {
    for (int to = 0; to < ports; ++to) {
      const auto route = fabric.route(port(from), port(to));
      ASSERT_TRUE(route.has_value());
      ASSERT_EQ(route->empty(), from == to);
      std::set<int> seen;
      for (size_t i = 0; i < route->size(); ++i) {
        const FabricLink& link = fabric.links()[static_cast<size_t>((*route)[i])];
        ASSERT_TRUE(i == 0 || fabric.links()[static_cast<size_t>((*route)[i - 1])].to == link.from);
        ASSERT_TRUE(seen.insert(link.from).second);
      }
    }
  }
}

TEST(Fabric, EveryRouteOfEveryKindIsAWayOverItsLinks) {
  for (const char* const text : {
           "dc a fat-tree nodes=24 children=4,6 parents=1,4 gbit_per_s=400",
           "dc a fat-tree nodes=23 children=3,2,4 parents=2,3,2 gbit_per_s=400",
           "dc a fat-tree nodes=6 rails=4 children=4,6 parents=1,4 gbit_per_s=400",
           "dc a rail-optimised nodes=10 rails=4 leaf=3 spines=5 gbit_per_s=400",
           "dc a dragonfly groups=9 switches=4 nodes=2 global=2 gbit_per_s=200",
           "dc a dragonfly groups=1 switches=4 nodes=3 global=1 gbit_per_s=200",
           "dc a dragonfly groups=4 switches=2 nodes=2 global=3 gbit_per_s=200",
           "dc a dragonfly+ groups=5 spines=4 leaves=3 nodes=2 global=1 gbit_per_s=200",
           "dc a torus size=4x3x5 gbit_per_s=50",
           "dc a torus size=4x3x5 ends=open gbit_per_s=50",
           "dc a torus size=2x2x2x2x2x1 gbit_per_s=50",
           "dc a hypercube dimensions=6 gbit_per_s=50",
           "dc a hypercube dimensions=3 gbit_per_s=50\n"
           "dc b torus size=3x3 gbit_per_s=50\n"
           "dc c dragonfly groups=3 switches=2 nodes=1 global=1 gbit_per_s=50\n"
           "dc d dragonfly+ groups=3 spines=2 leaves=2 nodes=1 global=1 gbit_per_s=50\n"
           "dc e fat-tree nodes=7 children=2,4 parents=1,3 gbit_per_s=50\n"
           "between a b gbit_per_s=10 latency_us=1000\nbetween b c gbit_per_s=10 latency_us=1\n"
           "between c d gbit_per_s=10 latency_us=1000\nbetween e a gbit_per_s=10 latency_us=1\n",
       }) {
    SCOPED_TRACE(text);
    expect_routes(make(text));
  }
}

TEST(FatTree, ClimbsToTheNearestCommonSwitch) {
  const Fabric fabric = make("dc a fat-tree nodes=24 children=2,3,4 parents=1,2,3 gbit_per_s=400");
  EXPECT_EQ(hops(fabric, 0, 1), 2U);
  EXPECT_EQ(hops(fabric, 0, 5), 4U);
  EXPECT_EQ(hops(fabric, 0, 23), 6U);
  // 24 ports, 12 leaf switches, 4 groups of 2, 6 at the top, and the border
  EXPECT_EQ(fabric.vertices(), 24 + 12 + 8 + 6 + 1);
}

TEST(FatTree, FullyProvisionedTreeCarriesEveryShiftAtFullSpeed) {
  const Fabric fabric = make("dc a fat-tree nodes=64 children=8,8 parents=1,8 gbit_per_s=400");
  for (int shift = 1; shift < 64; ++shift) {
    std::vector<FabricFlow> flows;
    for (int node = 0; node < 64; ++node) {
      flows.push_back({.from = {.node = node}, .to = {.node = (node + shift) % 64}});
    }
    EXPECT_THAT(share_links(fabric, flows), Each(::testing::DoubleEq(50))) << shift;
  }
}

TEST(FatTree, TaperedTreeSharesWhatIsLeft) {
  const Fabric fabric = make("dc a fat-tree nodes=16 children=8,2 parents=1,2 gbit_per_s=400");
  std::vector<FabricFlow> flows;
  for (int node = 0; node < 8; ++node) {
    flows.push_back({.from = {.node = node}, .to = {.node = node + 8}});
  }
  EXPECT_THAT(share_links(fabric, flows), Each(::testing::DoubleEq(50.0 / 4)));
}

TEST(RailTree, OneRailOfABlockIsOneSwitchAway) {
  const Fabric fabric =
      make("dc a rail-optimised nodes=64 rails=8 leaf=32 spines=4 gbit_per_s=400");
  EXPECT_EQ(fabric.rails(), 8);
  const auto count = [&](FabricPort from, FabricPort to) { return fabric.route(from, to)->size(); };
  EXPECT_EQ(count({0, 3}, {31, 3}), 2U);
  EXPECT_EQ(count({0, 3}, {32, 3}), 4U);
  EXPECT_EQ(count({0, 3}, {31, 4}), 4U);
  EXPECT_EQ(count({0, 3}, {0, 4}), 4U);
}

TEST(Dragonfly, NeedsAtMostOneLinkBetweenGroups) {
  const Fabric fabric = make("dc a dragonfly groups=9 switches=4 nodes=2 global=2 gbit_per_s=200");
  EXPECT_EQ(fabric.nodes(), 72);
  for (int from = 0; from < 72; ++from) {
    for (int to = 0; to < 72; ++to) {
      const size_t length = hops(fabric, from, to);
      EXPECT_LE(length, from / 8 == to / 8 ? 3U : 5U);
    }
  }
}

TEST(Dragonfly, EveryTwoGroupsAreJoinedAndNoSwitchHasTooManyCables) {
  struct Shape {
    int groups;
    int switches;
    int global;
  };
  for (const auto& [groups, switches, global] :
       {Shape{9, 4, 2}, Shape{4, 2, 3}, Shape{4, 8, 5}, Shape{6, 2, 4}, Shape{13, 5, 3}}) {
    const std::string text =
        fmt::format("dc a dragonfly groups={} switches={} nodes=1 global={} gbit_per_s=200", groups,
                    switches, global);
    const Fabric fabric = make(text);
    std::map<int, int> cables;
    std::set<std::pair<int, int>> joined;
    for (const FabricLink& link : fabric.links()) {
      const int first = fabric.nodes();
      if (link.from < first || link.to < first || link.from == fabric.vertices() - 1 ||
          link.to == fabric.vertices() - 1) {
        continue;
      }
      const int a = (link.from - first) / switches;
      const int b = (link.to - first) / switches;
      if (a != b) {
        cables[link.from] += link.cables;
        joined.emplace(a, b);
      }
    }
    EXPECT_EQ(joined.size(), static_cast<size_t>(groups * (groups - 1))) << text;
    for (const auto& [at, count] : cables) {
      EXPECT_LE(count, global) << text << " switch " << at;
    }
  }
}

TEST(DragonflyPlus, LeavesMeetInASpineOfTheirGroup) {
  const Fabric fabric =
      make("dc a dragonfly+ groups=5 spines=4 leaves=3 nodes=2 global=1 gbit_per_s=200");
  EXPECT_EQ(hops(fabric, 0, 1), 2U);
  EXPECT_EQ(hops(fabric, 0, 2), 4U);
  EXPECT_EQ(hops(fabric, 0, 29), 5U);
}

TEST(Torus, GoesTheShorterWayRoundInEachDimension) {
  const Fabric fabric = make("dc a torus size=8x4 gbit_per_s=50");
  for (int from = 0; from < 32; ++from) {
    for (int to = 0; to < 32; ++to) {
      const int dx = std::abs(from % 8 - to % 8);
      const int dy = std::abs(from / 8 - to / 8);
      EXPECT_EQ(hops(fabric, from, to),
                static_cast<size_t>(std::min(dx, 8 - dx) + std::min(dy, 4 - dy)));
    }
  }
  EXPECT_EQ(fabric.links().size(), 2U * 2 * 32 + 2 * 8) << "two for each node and dimension, and "
                                                           "the border's";
}

TEST(Torus, NeighboursOfARingDoNotShare) {
  const Fabric fabric = make("dc a torus size=6 gbit_per_s=80");
  std::vector<FabricFlow> flows;
  for (int node = 0; node < 6; ++node) {
    flows.push_back({.from = {.node = node}, .to = {.node = (node + 1) % 6}});
  }
  EXPECT_THAT(count_flows(fabric, flows),
              AllOf(::testing::Not(::testing::Contains(::testing::Gt(1))), ::testing::Contains(1)));
  EXPECT_THAT(share_links(fabric, flows), Each(::testing::DoubleEq(10)));
  for (FabricFlow& flow : flows) {
    flow.to.node = (flow.from.node + 2) % 6;
  }
  EXPECT_THAT(share_links(fabric, flows), Each(::testing::DoubleEq(5)));
}

TEST(Hypercube, RouteHasAsManyLinksAsBitsDiffer) {
  const Fabric fabric = make("dc a hypercube dimensions=5 gbit_per_s=50");
  for (int from = 0; from < 32; ++from) {
    for (int to = 0; to < 32; ++to) {
      EXPECT_EQ(hops(fabric, from, to),
                static_cast<size_t>(std::popcount(static_cast<unsigned>(from ^ to))));
    }
  }
}

constexpr const char* kThreeDatacenters = R"(# three sites in a line
dc east  fat-tree  nodes=4 children=4 parents=1 gbit_per_s=400 latency_us=0.5
dc mid   torus     size=4               gbit_per_s=400   # no traffic of its own
dc west  hypercube dimensions=2         gbit_per_s=400
dc alone torus     size=2               gbit_per_s=400
between east mid  cables=2 gbit_per_s=100 latency_us=2000
between mid  west cables=4 gbit_per_s=100 latency_us=3000
)";

TEST(Fabric, RouteBetweenDatacentersGoesOverTheirBorders) {
  const Fabric fabric = make(kThreeDatacenters);
  EXPECT_EQ(fabric.datacenters(), 4);
  EXPECT_EQ(fabric.datacenter_of(3), 0);
  EXPECT_EQ(fabric.datacenter_of(4), 1);
  EXPECT_EQ(fabric.datacenter_name(fabric.datacenter_of(11)), "west");
  EXPECT_THAT(
      names(fabric, {1, 0}, {9, 0}),
      ElementsAre("east switch 0", "east border", "mid border", "west border", "node 8", "node 9"));
  EXPECT_FALSE(fabric.route({.node = 0}, {.node = 12}).has_value());
  EXPECT_NEAR(latency_us(fabric, *fabric.route({1, 0}, {9, 0})), 5001.5, 1e-9);
}

TEST(Fabric, FlowsShareTheCablesBetweenDatacentersAndEachTakesOne) {
  const Fabric fabric = make(kThreeDatacenters);
  std::vector<FabricFlow> flows = {{.from = {.node = 0}, .to = {.node = 8}}};
  EXPECT_THAT(share_links(fabric, flows), ElementsAre(12.5)) << "one cable";
  flows.push_back({.from = {.node = 1}, .to = {.node = 9}});
  EXPECT_THAT(share_links(fabric, flows), ElementsAre(12.5, 12.5));
  flows.push_back({.from = {.node = 2}, .to = {.node = 10}});
  flows.push_back({.from = {.node = 3}, .to = {.node = 4}});
  EXPECT_THAT(share_links(fabric, flows), Each(::testing::DoubleEq(6.25)));
  flows.push_back({.from = {.node = 3}, .to = {.node = 3}});
  flows.push_back({.from = {.node = 3}, .to = {.node = 13}});
  const std::vector<double> rates = share_links(fabric, flows);
  EXPECT_TRUE(std::isinf(rates[4]));
  EXPECT_EQ(rates[5], 0);
}

TEST(Fabric, NoLinkCarriesMoreThanItCanAndEveryFlowMeetsAFullOne) {
  const Fabric fabric = make(
      "dc a dragonfly groups=5 switches=2 nodes=3 global=2 gbit_per_s=80\n"
      "dc b fat-tree nodes=10 children=5,2 parents=1,2 gbit_per_s=160\n"
      "between a b cables=3 gbit_per_s=40 latency_us=100");
  std::vector<FabricFlow> flows;
  uint32_t state = 12345;
  const auto random_node = [&] {
    state = state * 1664525 + 1013904223;
    return static_cast<int>((state >> 8) % static_cast<uint32_t>(fabric.nodes()));
  };
  for (int i = 0; i < 300; ++i) {
    const int from = random_node();
    const int to = random_node();
    if (from != to) {
      flows.push_back({.from = {.node = from}, .to = {.node = to}});
    }
  }
  const std::vector<double> rates = share_links(fabric, flows);
  std::vector<double> used(fabric.links().size());
  for (size_t i = 0; i < flows.size(); ++i) {
    for (const int link : links_between(fabric, flows[i].from, flows[i].to)) {
      used[static_cast<size_t>(link)] += rates[i];
    }
  }
  for (size_t i = 0; i < flows.size(); ++i) {
    bool limited = false;
    for (const int number : links_between(fabric, flows[i].from, flows[i].to)) {
      const FabricLink& link = fabric.links()[static_cast<size_t>(number)];
      const double capacity = link.cables * link.gbit_per_s / 8;
      EXPECT_LE(used[static_cast<size_t>(number)], capacity * 1.000001);
      limited = limited || used[static_cast<size_t>(number)] > capacity * 0.999999 ||
                rates[i] > link.gbit_per_s / 8 * 0.999999;
    }
    EXPECT_TRUE(limited) << i;
  }
}

TEST(FabricText, WhatIsWrongIsNamedWithItsLine) {
  EXPECT_THAT(refusal(""), HasSubstr("no datacenter"));
  EXPECT_THAT(refusal("# nothing\n\nnode 3"), HasSubstr("line 3: 'node'"));
  EXPECT_THAT(refusal("dc a ring nodes=4"), HasSubstr("line 1: 'ring' is not a network"));
  EXPECT_THAT(refusal("dc a torus size=4x0 gbit_per_s=1"), HasSubstr("size=0"));
  EXPECT_THAT(refusal("dc a torus size=4x gbit_per_s=1"), HasSubstr("size="));
  EXPECT_THAT(refusal("dc a torus gbit_per_s=1"), HasSubstr("size= is missing"));
  EXPECT_THAT(refusal("dc a torus size=4"), HasSubstr("gbit_per_s= is missing"));
  EXPECT_THAT(refusal("dc a torus size=4 gbit_per_s=nan"), HasSubstr("gbit_per_s=nan"));
  EXPECT_THAT(refusal("dc a torus size=4 gbit_per_s=-1"), HasSubstr("gbit_per_s=-1"));
  EXPECT_THAT(refusal("dc a torus size=4 gbit_per_s=1 colour=red"),
              HasSubstr("unknown key colour="));
  EXPECT_THAT(refusal("dc a torus size=4 gbit_per_s=1 size=5"), HasSubstr("size= is given twice"));
  EXPECT_THAT(refusal("dc a torus size=4 gbit_per_s=1 ends=loose"), HasSubstr("ends=loose"));
  EXPECT_THAT(refusal("dc a torus size=4 gbit_per_s"), HasSubstr("'gbit_per_s' is not key=value"));
  EXPECT_THAT(refusal("dc a hypercube dimensions=30 gbit_per_s=1"), HasSubstr("dimensions=30"));
  EXPECT_THAT(refusal("dc a torus size=5000x5000 gbit_per_s=1"), HasSubstr("more than"));
  EXPECT_THAT(refusal("dc a fat-tree nodes=9 children=4,2 parents=1,1 gbit_per_s=1"),
              HasSubstr("8 places"));
  EXPECT_THAT(refusal("dc a fat-tree nodes=9 children=4,4 parents=1 gbit_per_s=1"),
              HasSubstr("children= has 2 levels"));
  EXPECT_THAT(refusal("dc a dragonfly groups=9 switches=2 nodes=1 global=3 gbit_per_s=1"),
              HasSubstr("8 are needed"));
  const std::string two = "dc a torus size=2 gbit_per_s=1\ndc b torus size=2 gbit_per_s=1\n";
  EXPECT_THAT(refusal(two + "dc a torus size=2 gbit_per_s=1"), HasSubstr("line 3: datacenter a"));
  EXPECT_THAT(refusal(two + "between a c gbit_per_s=1 latency_us=1"), HasSubstr("line 3"));
  EXPECT_THAT(refusal(two + "between a a gbit_per_s=1 latency_us=1"), HasSubstr("itself"));
  EXPECT_THAT(refusal(two + "between a b gbit_per_s=1"), HasSubstr("latency_us= is missing"));
  EXPECT_THAT(refusal(two + "between a b gbit_per_s=1 latency_us=1\n"
                            "between b a gbit_per_s=1 latency_us=1"),
              HasSubstr("line 4: b and a are already connected"));
}

TEST(FabricText, LargeSystemsAreBuiltQuickly) {
  const Fabric fabric =
      make("dc a rail-optimised nodes=3072 rails=8 leaf=32 spines=256 gbit_per_s=400");
  EXPECT_EQ(fabric.nodes() * fabric.rails(), 24'576);
  EXPECT_EQ(fabric.route({0, 0}, {3071, 7})->size(), 4U);
}

}  // namespace
}  // namespace plexus::testing
