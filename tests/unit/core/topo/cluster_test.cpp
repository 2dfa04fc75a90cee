// SPDX-License-Identifier: Apache-2.0
// Properties that hold for every machine in fixtures/ and any number of machines.
#include "core/topo/cluster.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/topo/machines.hpp"

namespace plexus::testing {
namespace {

using ::testing::HasSubstr;

XmlElement read_machine(const std::string& name) {
  Result<XmlElement> machine = read_machine_file(fixture(name + ".xml"));
  EXPECT_TRUE(machine);
  return std::move(machine).value();
}

Result<ClusterChannels> plan(const std::string& name, int machines) {
  ClusterRequest request;
  request.machines = machines;
  return plan_cluster(read_machine(name), request);
}

/// Node of each rank: the part of the machine that it is in.
std::vector<int> nodes_of(const ClusterChannels& cluster, int machines) {
  std::vector<int> node_of(static_cast<size_t>(cluster.joined.ranks));
  const int per_machine = cluster.joined.ranks / machines;
  int node = 0;
  for (int machine = 0; machine < machines; ++machine) {
    for (const NodeChannels& part : cluster.found) {
      for (const int rank : part.ring.ranks.front()) {
        const int global = machine * per_machine + rank;
        node_of[static_cast<size_t>(global)] = node;
      }
      ++node;
    }
  }
  return node_of;
}

void expect_ring(const std::vector<int>& ring, const std::vector<int>& node_of, int nodes) {
  ASSERT_EQ(ring.size(), node_of.size());
  EXPECT_EQ(ring.front(), 0);
  std::vector<int> sorted = ring;
  std::sort(sorted.begin(), sorted.end());
  for (size_t rank = 0; rank < sorted.size(); ++rank) {
    ASSERT_EQ(sorted[rank], static_cast<int>(rank)) << "every rank once";
  }
  int changes = 0;
  for (size_t step = 0; step < ring.size(); ++step) {
    const auto here = static_cast<size_t>(ring[step]);
    const auto next = static_cast<size_t>(ring[(step + 1) % ring.size()]);
    changes += node_of[here] != node_of[next] ? 1 : 0;
  }
  EXPECT_EQ(changes, nodes > 1 ? nodes : 0) << "each node is entered and left once";
}

void expect_tree(const TreeLinks& tree) {
  int roots = 0;
  for (size_t rank = 0; rank < tree.up.size(); ++rank) {
    const int up = tree.up[rank];
    roots += up < 0 ? 1 : 0;
    if (up >= 0) {
      EXPECT_THAT(tree.down[static_cast<size_t>(up)], ::testing::Contains(static_cast<int>(rank)));
    }
    size_t steps = 0;
    for (int above = up; above >= 0 && steps <= tree.up.size(); ++steps) {
      above = tree.up[static_cast<size_t>(above)];
    }
    ASSERT_LE(steps, tree.up.size()) << "a cycle above rank " << rank;
  }
  EXPECT_EQ(roots, 1);
}

/// No port carries more than its bandwidth, and no equal port is idle while another one is used.
void expect_balanced_nets(const System& part, const ChannelGraph& ring) {
  std::map<int, std::pair<int, int>> uses;
  for (const ChannelNets& nets : ring.nets) {
    ++uses[nets.in].first;
    ++uses[nets.out].second;
  }
  int least = ring.channels();
  int most = 0;
  for (const auto& [net, in_out] : uses) {
    least = std::min({least, in_out.first, in_out.second});
    most = std::max({most, in_out.first, in_out.second});
    for (int i = 0; i < part.count(NodeType::kNet); ++i) {
      const NetDetail& port = part.node(NodeType::kNet, i).net;
      if (port.device == net) {
        EXPECT_LE(static_cast<float>(in_out.first) * ring.inter_gb_per_s, port.gb_per_s + 0.01F);
        EXPECT_LE(static_cast<float>(in_out.second) * ring.inter_gb_per_s, port.gb_per_s + 0.01F);
      }
    }
  }
  EXPECT_LE(most - least, 1);
}

void expect_joined(const ClusterChannels& cluster, int machines) {
  SCOPED_TRACE(machines);
  const std::vector<int> node_of = nodes_of(cluster, machines);
  const int nodes = machines * static_cast<int>(cluster.parts.size());
  for (const std::vector<int>& ring : cluster.joined.rings) {
    expect_ring(ring, node_of, nodes);
  }
  for (const TreeLinks& tree : cluster.joined.trees) {
    expect_tree(tree);
  }
}

class Cluster : public ::testing::TestWithParam<std::string> {};

/// The search gives the same result for any number of machines above one.
TEST_P(Cluster, RingsVisitEachRankOnceAndTreesReachAll) {
  const Result<ClusterChannels> alone = plan(GetParam(), 1);
  const Result<ClusterChannels> two = plan(GetParam(), 2);
  ASSERT_TRUE(alone && two);
  expect_joined(alone.value(), 1);
  expect_joined(two.value(), 2);
  const int per_machine = alone.value().joined.ranks;
  for (const int machines : {3, 4, 5, 8, 16}) {
    ClusterChannels cluster = two.value();
    std::vector<ClusterNode> nodes;
    for (int machine = 0; machine < machines; ++machine) {
      for (const NodeChannels& part : cluster.found) {
        nodes.push_back({.found = &part, .rank_offset = machine * per_machine, .sm_min = 0});
      }
    }
    Result<JoinedChannels> joined = join_nodes(nodes, {});
    ASSERT_TRUE(joined) << joined.error().message();
    cluster.joined = std::move(joined).value();
    expect_joined(cluster, machines);
  }
}

TEST_P(Cluster, NicsAreBalancedOverTheRings) {
  const Result<ClusterChannels> planned = plan(GetParam(), 2);
  ASSERT_TRUE(planned) << planned.error().message();
  for (size_t part = 0; part < planned.value().parts.size(); ++part) {
    if (planned.value().parts[part].count(NodeType::kNet) > 0) {
      expect_balanced_nets(planned.value().parts[part], planned.value().found[part].ring);
    }
  }
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string text = info.param;
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

INSTANTIATE_TEST_SUITE_P(Machines, Cluster, ::testing::ValuesIn(machines()), test_name);

/// Plans can be made for machines other than this one: 24,576 ranks.
TEST(ClusterPlan, Joins3072NodesOf8Gpus) {
  constexpr int kMachines = 3072;
  const Result<ClusterChannels> planned = plan("azure-ndv5-completed", kMachines);
  ASSERT_TRUE(planned) << planned.error().message();
  EXPECT_EQ(planned.value().joined.ranks, kMachines * 8);
  EXPECT_EQ(planned.value().joined.channels(), 16);
  expect_ring(planned.value().joined.rings.back(), nodes_of(planned.value(), kMachines), kMachines);
}

TEST(ClusterPlan, LimitsCutAndRepeatChannels) {
  ClusterRequest request;
  request.machines = 2;
  request.limits = {.min = 0, .max = 3};
  EXPECT_EQ(plan_cluster(read_machine("dgx1v-reconstructed"), request).value().joined.channels(),
            3);
  request.limits = {.min = 11, .max = 0};
  const JoinedChannels joined =
      plan_cluster(read_machine("dgx1v-reconstructed"), request).value().joined;
  ASSERT_EQ(joined.channels(), 11);
  EXPECT_EQ(joined.rings[8], joined.rings[0]);
  EXPECT_EQ(joined.rings[10], joined.rings[2]);
}

/// Fewest crossings that close a ring over D datacenters: D; of a tree: D - 1.
TEST(ClusterPlan, CrossesBetweenDatacentersAsRarelyAsPossible) {
  for (const std::vector<int>& datacenters :
       {std::vector<int>{0, 0, 1, 1}, {0, 1, 0, 1, 0}, {2, 2, 1, 0, 0, 0, 1}}) {
    ClusterRequest request;
    request.machines = static_cast<int>(datacenters.size());
    request.datacenters.of_node = datacenters;
    const int count = *std::max_element(datacenters.begin(), datacenters.end()) + 1;
    const Result<ClusterChannels> planned = plan_cluster(read_machine("hgx-h800"), request);
    ASSERT_TRUE(planned) << planned.error().message();
    EXPECT_THAT(planned.value().joined.ring_crossings, ::testing::Each(count));
    EXPECT_THAT(planned.value().joined.tree_crossings, ::testing::Each(count - 1));
    expect_ring(planned.value().joined.rings[1], nodes_of(planned.value(), request.machines),
                request.machines);
  }
}

TEST(ClusterPlan, NodesMayDifferInTheirNumberOfRanks) {
  const System large = load("dgx1v-reconstructed", true);
  const System small = load("pcie-4xa6000", true);
  const NodeChannels of_large = search_node(large, {});
  const NodeChannels of_small = search_node(small, {});
  const std::vector<ClusterNode> nodes = {{.found = &of_large, .rank_offset = 0, .sm_min = 70},
                                          {.found = &of_small, .rank_offset = 8, .sm_min = 86},
                                          {.found = &of_large, .rank_offset = 12, .sm_min = 70}};
  const Result<JoinedChannels> joined = join_nodes(nodes, {});
  ASSERT_TRUE(joined) << joined.error().message();
  EXPECT_EQ(joined.value().ranks, 20);
  EXPECT_EQ(joined.value().search_channels, 4);
  EXPECT_FLOAT_EQ(joined.value().ring.inter_gb_per_s, 1.2F);
  EXPECT_EQ(joined.value().ring.intra_type, PathType::kSys);
  for (const TreeLinks& tree : joined.value().trees) {
    expect_tree(tree);
  }
}

TEST(ClusterPlan, SaysWhichRanksAreMissingOrTwice) {
  const NodeChannels found = search_node(load("epyc-2x4090", true), {});
  const std::vector<ClusterNode> twice = {{.found = &found}, {.found = &found, .rank_offset = 1}};
  EXPECT_THAT(join_nodes(twice, {}).error().message(), HasSubstr("rank 1 is in two nodes"));
  const std::vector<ClusterNode> gap = {{.found = &found}, {.found = &found, .rank_offset = 3}};
  EXPECT_THAT(join_nodes(gap, {}).error().message(), HasSubstr("rank 2 of 5 is in no node"));
  EXPECT_THAT(join_nodes({}, {}).error().message(), HasSubstr("no node"));
}

TEST(ClusterPlan, RefusesATemplate) {
  EXPECT_THAT(plan("azure-ndv5-topo", 1).error().message(), HasSubstr("has no ranks"));
}

/// 16 GPUs on two sockets, each with NICs that carry more than the link between the sockets.
TEST(ClusterPlan, MachineFallsIntoPartsWhereTheNetworkIsTheBetterWay) {
  EXPECT_EQ(plan("pcie-16xl20", 1).value().parts.size(), 2U);
  ClusterRequest request;
  request.options.net_disable_intra = true;
  EXPECT_EQ(plan_cluster(read_machine("pcie-16xl20"), request).value().parts.size(), 1U);
}

}  // namespace
}  // namespace plexus::testing
