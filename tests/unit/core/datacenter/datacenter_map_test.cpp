// SPDX-License-Identifier: Apache-2.0
#include "core/datacenter/datacenter_map.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/datacenter/fabric_file.hpp"
#include "core/datacenter/fabric_id.hpp"

namespace plexus::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::vector<DatacenterNode> by_file(std::string_view text, const std::vector<std::string>& hosts) {
  const FabricFile file = parse_fabric_file(text).value();
  std::vector<DatacenterNode> nodes;
  for (const std::string& host : hosts) {
    nodes.push_back({.host = host, .location = file.location_of(host), .answers = {}});
  }
  return nodes;
}

/// Nodes h0, h1, ... with these ids, compared by NCCL's arithmetic.
std::vector<DatacenterNode> by_ids(const std::vector<std::vector<uint64_t>>& ids,
                                   uint64_t rails_max) {
  std::vector<DatacenterNode> nodes;
  for (const auto& own : ids) {
    DatacenterNode node{.host = fmt::format("h{}", nodes.size()), .location = {}, .answers = {}};
    node.location.fabric_ids = own;
    nodes.push_back(std::move(node));
  }
  for (DatacenterNode& node : nodes) {
    for (const uint64_t from : node.location.fabric_ids) {
      for (const uint64_t to : distinct_fabric_ids(nodes)) {
        node.answers.push_back(
            {.from = from, .to = to, .level = fabric_level(from, to, rails_max), .path = {}});
      }
    }
  }
  return nodes;
}

std::string error_of(const std::vector<DatacenterNode>& nodes) {
  const auto map = make_datacenter_map(nodes);
  return map ? "no error" : map.error().message();
}

TEST(DatacenterMap, WithoutAnyKnowledgeThereIsOneDatacenter) {
  const DatacenterMap map = make_datacenter_map(by_ids({{}, {}, {}}, 8)).value();
  EXPECT_THAT(map.of_node, ElementsAre(0, 0, 0));
  EXPECT_THAT(map.visits, ElementsAre(0));
}

TEST(DatacenterMap, TakesAnyPlacementFromTheFile) {
  const DatacenterMap map =
      make_datacenter_map(by_file("host a* dc x\nhost b* dc y\nlink x y ms 3 gbit 10",
                                  {"b1", "a1", "b2", "a2", "a3"}))
          .value();
  EXPECT_THAT(map.of_node, ElementsAre(0, 1, 0, 1, 1));
  EXPECT_THAT(map.names, ElementsAre("y", "x"));
  EXPECT_EQ(map.path(0, 1).latency_ns, 3'000'000U);
  EXPECT_EQ(map.path(1, 0).mbit_per_s, 10'000U);
}

TEST(DatacenterMap, RoundOfLeastCost) {
  // The square a-b-c-d with cheap sides and expensive diagonals, in the order a c b d.
  const DatacenterMap map = make_datacenter_map(by_file(R"(
host a dc a
host b dc b
host c dc c
host d dc d
link a b cost 1
link b c cost 1
link c d cost 1
link d a cost 1
link a c cost 9
link b d cost 9)",
                                                        {"a", "c", "b", "d"}))
                                .value();
  EXPECT_THAT(map.visits, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(map.names, AnyOf(ElementsAre("a", "b", "c", "d"), ElementsAre("a", "d", "c", "b")));
  EXPECT_TRUE(map.meshed());
}

TEST(DatacenterMap, LineIsWalkedThereAndBack) {
  for (int count = 3; count <= 12; ++count) {
    std::string text;
    std::vector<std::string> hosts;
    for (int i = 0; i < count; ++i) {
      text += fmt::format("host h{} dc d{}\n", i, i);
      hosts.push_back(fmt::format("h{}", (i + count / 2) % count));
    }
    for (int i = 1; i < count; ++i) {
      text += fmt::format("link d{} d{}\n", i - 1, i);
    }
    const DatacenterMap map = make_datacenter_map(by_file(text, hosts)).value();
    EXPECT_FALSE(map.meshed());
    ASSERT_THAT(map.visits, SizeIs(2 * (count - 1)));
    for (size_t at = 0; at < map.visits.size(); ++at) {
      const auto from = static_cast<size_t>(map.visits[at]);
      const auto to = static_cast<size_t>(map.visits[(at + 1) % map.visits.size()]);
      EXPECT_TRUE(map.path(from, to).connected) << count;
    }
  }
}

/// Number of the datacenters beside each in the tree, and the largest number of links to the root.
std::pair<std::vector<int>, int> shape_of(const std::vector<int>& above) {
  std::vector<int> neighbours(above.size());
  int height = 0;
  for (size_t at = 0; at < above.size(); ++at) {
    int steps = 0;
    for (int up = above[at]; up >= 0; up = above[static_cast<size_t>(up)]) {
      ++steps;
    }
    height = std::max(height, steps);
    if (above[at] >= 0) {
      ++neighbours[at];
      ++neighbours[static_cast<size_t>(above[at])];
    }
  }
  return {neighbours, height};
}

TEST(DatacenterMap, TreeOfLeastCostHasItsRootInTheMiddle) {
  // A ring a-b-c-d-e of which the link e-a is dear: the tree is the line a-b-c-d-e below c.
  const DatacenterMap map = make_datacenter_map(by_file(R"(
host a dc a
host b dc b
host c dc c
host d dc d
host e dc e
link a b cost 1
link b c cost 2
link c d cost 1
link d e cost 2
link e a cost 9)",
                                                        {"d", "b", "a", "e", "c"}))
                                .value();
  const auto number = [&](const char* name) {
    return static_cast<int>(std::find(map.names.begin(), map.names.end(), name) -
                            map.names.begin());
  };
  const auto above = [&](const char* name) { return map.above[static_cast<size_t>(number(name))]; };
  EXPECT_EQ(above("a"), number("b"));
  EXPECT_EQ(above("b"), number("c"));
  EXPECT_EQ(above("c"), -1);
  EXPECT_EQ(above("d"), number("c"));
  EXPECT_EQ(above("e"), number("d"));
}

/// As a chain in the order of the ring's visits it would need a link between two of the points.
TEST(DatacenterMap, TreeOfAStarUsesItsLinks) {
  const DatacenterMap map =
      make_datacenter_map(by_file("host h dc hub\nhost a dc a\nhost b dc b\nhost c dc c\n"
                                  "link hub a\nlink hub b\nlink hub c",
                                  {"a", "b", "c", "h"}))
          .value();
  for (size_t at = 0; at < map.count(); ++at) {
    EXPECT_TRUE(map.above[at] < 0 || map.path(at, static_cast<size_t>(map.above[at])).connected);
  }
  EXPECT_EQ(shape_of(map.above).second, 1);
}

TEST(DatacenterMap, TreeOfEqualLinksIsAPathBelowItsMiddle) {
  for (const int count : {2, 3, 4, 7, 64}) {
    const auto [neighbours, height] = shape_of(find_tree(count));
    EXPECT_EQ(height, count / 2);
    EXPECT_EQ(*std::max_element(neighbours.begin(), neighbours.end()), std::min(count - 1, 2));
  }
}

TEST(DatacenterMap, DatacenterWithoutAPathIsAnError) {
  EXPECT_THAT(error_of(by_file("host a dc a\nhost b dc b\nhost c dc c\nlink a b", {"a", "b", "c"})),
              HasSubstr("there is no path from datacenter"));
}

TEST(DatacenterMap, ContradictionsNameBothNodes) {
  auto nodes = by_file("host a dc x\nhost b dc y\nlink x y ms 3", {"a", "b"});
  nodes[1].location.links[0].path.latency_ns = 4;
  EXPECT_THAT(error_of(nodes), HasSubstr("hosts a and b differ in the link"));
  nodes[1].location = {};
  EXPECT_THAT(error_of(nodes),
              AllOf(HasSubstr("host b matches no host line"), HasSubstr("host a")));

  auto by_id = by_ids({{0}, {8}}, 8);
  by_id[1].answers[0].level = FabricAnswer::Level::kSame;
  EXPECT_THAT(error_of(by_id), HasSubstr("hosts h0 and h1 report fabrics"));
}

TEST(DatacenterMap, IdsThatChainTwoDatacentersAreAnError) {
  EXPECT_THAT(error_of(by_ids({{0}, {8}, {0, 8}}, 8)),
              AllOf(HasSubstr("(host h0)"), HasSubstr("(host h1)")));
}

TEST(DatacenterMap, IdsOfAnyPlacementUnevenAndAlone) {
  EXPECT_THAT(
      make_datacenter_map(by_ids({{0, 1}, {8, 9}, {0, 1}, {8, 9}, {16}}, 8)).value().of_node,
      ElementsAre(0, 1, 0, 1, 2));
  // Rails without a connection are in one datacenter if a node has both.
  EXPECT_THAT(make_datacenter_map(by_ids({{0}, {1}, {0, 1}}, 8)).value().of_node,
              ElementsAre(0, 0, 0));
  // A node without a fast NIC is a datacenter of its own.
  EXPECT_THAT(make_datacenter_map(by_ids({{0}, {}, {0}, {}}, 8)).value().of_node,
              ElementsAre(0, 1, 0, 1));
}

TEST(Location, IsTheSameAfterTheExchangeAndBounded) {
  Location location;
  location.datacenter = std::string(kDatacenterNameBytesMax, 'x');
  for (size_t i = 0; i < kDatacentersMax; ++i) {
    location.links.push_back(
        {.to = std::string(kDatacenterNameBytesMax, 'y'), .path = {true, 1, std::nullopt, i}});
  }
  for (size_t i = 0; i < kFabricIdsMax; ++i) {
    location.fabric_ids.push_back(i);
  }
  const std::string bytes = encode(location);
  EXPECT_LE(bytes.size(), kLocationBytesMax);
  EXPECT_EQ(decode_location(bytes).value(), location);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_location(std::string_view(bytes).substr(0, size)));
  }
  EXPECT_FALSE(decode_location(bytes + "x"));
}

TEST(Location, AnswersAreTheSameAfterTheExchange) {
  const std::vector<FabricAnswer> answers = by_ids({{0, 1}, {8}}, 8)[0].answers;
  const std::string bytes = encode(answers);
  EXPECT_EQ(decode_answers(bytes).value(), answers);
  EXPECT_FALSE(decode_answers(std::string_view(bytes).substr(1)));
}

}  // namespace
}  // namespace plexus::testing
