// SPDX-License-Identifier: Apache-2.0
// Situations in which another implementation of datacenters fails. The comment above each test
// describes that implementation's bug; B2, B4, ... number the bugs across the tests named
// KnownBugs.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/datacenter/datacenter_map.hpp"
#include "core/datacenter/fabric_id.hpp"

namespace plexus::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Level = FabricAnswer::Level;

std::vector<DatacenterNode> nodes_with(const std::vector<std::vector<uint64_t>>& ids) {
  std::vector<DatacenterNode> nodes;
  for (const auto& own : ids) {
    DatacenterNode node{.host = "h" + std::to_string(nodes.size()), .location = {}, .answers = {}};
    node.location.fabric_ids = own;
    nodes.push_back(std::move(node));
  }
  return nodes;
}

void answer(DatacenterNode& node, uint64_t from, uint64_t to, Level level) {
  node.answers.push_back({.from = from, .to = to, .level = level, .path = {}});
}

/// B2: rotation by the size of a datacenter with one node divides by zero.
TEST(KnownBugs, B2DatacenterOfOneNodeIsLikeAnyOther) {
  auto nodes = nodes_with({{0}, {8}});
  answer(nodes[0], 0, 8, Level::kOther);
  const DatacenterMap map = make_datacenter_map(nodes).value();
  EXPECT_THAT(map.of_node, ElementsAre(0, 1));
  EXPECT_THAT(map.visits, ElementsAre(0, 1));
}

/// B4: a network is identified by its position in a list, which differs between nodes.
TEST(KnownBugs, B4IdsMeanTheSameWhateverTheOrderOfDevices) {
  auto nodes = nodes_with({{0, 9}, {9}, {0}});
  answer(nodes[0], 0, 9, Level::kSame);
  EXPECT_THAT(make_datacenter_map(nodes).value().of_node, ElementsAre(0, 0, 0));
}

TEST(KnownBugs, B4EqualIdsOfTwoNetworksAreAnErrorThatNamesBothHosts) {
  auto nodes = nodes_with({{0}, {0}});
  nodes[0].location.net = "ib";
  nodes[1].location.net = "socket";
  const auto map = make_datacenter_map(nodes);
  ASSERT_TRUE(map.has_error());
  EXPECT_THAT(map.error().message(), AllOf(HasSubstr("host h0"), HasSubstr("'ib'"),
                                           HasSubstr("host h1"), HasSubstr("'socket'")));
}

/// B7: every rank sends more than a kilobyte to every rank.
TEST(KnownBugs, B7LocationOfAPlainNodeIsSmall) {
  Location location;
  EXPECT_LE(encode(location).size(), 64U);
  location.datacenter = "berlin";
  location.fabric_ids = {1, 2};
  EXPECT_LE(encode(location).size(), 96U);
}

/// B8: a pair that cannot communicate ends the job, although it is never used.
TEST(KnownBugs, B8PairThatDoesNotReachEachOtherIsNoErrorWhereOthersDo) {
  auto nodes = nodes_with({{0}, {8}, {16}});
  answer(nodes[0], 0, 8, Level::kOther);
  answer(nodes[0], 0, 16, Level::kDisconnected);
  answer(nodes[1], 8, 16, Level::kOther);
  answer(nodes[2], 16, 0, Level::kDisconnected);
  const DatacenterMap map = make_datacenter_map(nodes).value();
  EXPECT_FALSE(map.meshed());
  EXPECT_EQ(map.visits.size(), 4U);  // there and back
}

/// B9: without any NIC, uninitialised memory decides.
TEST(KnownBugs, B9NodesWithoutNicsAreOneDatacenter) {
  EXPECT_THAT(make_datacenter_map(nodes_with({{}, {}})).value().of_node, ElementsAre(0, 0));
}

/// B11: ids are read only in decimal.
TEST(KnownBugs, B11IdsMayBeHexadecimal) {
  const HcaList list = parse_hca_list("a:1:0x10", HcaSyntax::kFabricId).value();
  EXPECT_EQ(list.find("a", 1)->fabric_id, 16U);
}

}  // namespace
}  // namespace plexus::testing
