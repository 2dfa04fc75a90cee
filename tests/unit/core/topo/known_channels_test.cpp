// SPDX-License-Identifier: Apache-2.0
// Channels that NCCL logged on real machines, as published in issue reports; A1, B12, ... number
// the reports. With default options: a ring stays on the adapter by which it entered, or pairs
// swap.
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/topo/graph_file.hpp"
#include "core/topo/join.hpp"
#include "core/topo/search.hpp"
#include "tests/unit/core/topo/machines.hpp"

namespace plexus::testing {
namespace {

std::vector<int> upwards(int from, int count) {
  std::vector<int> ranks;
  ranks.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    ranks.push_back((from + i) % count);
  }
  return ranks;
}

std::vector<int> downwards(int from, int count) {
  std::vector<int> ranks;
  ranks.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    ranks.push_back((from - i + count) % count);
  }
  return ranks;
}

void expect_speed(const ChannelGraph& graph, int channels, float intra, float inter) {
  EXPECT_EQ(graph.channels(), channels);
  EXPECT_FLOAT_EQ(graph.intra_gb_per_s, intra);
  EXPECT_FLOAT_EQ(graph.inter_gb_per_s, inter);
}

JoinedChannels join(const NodeChannels& found, const System& system, int nodes) {
  std::vector<ClusterNode> cluster;
  cluster.reserve(static_cast<size_t>(nodes));
  for (int node = 0; node < nodes; ++node) {
    cluster.push_back({.found = &found,
                       .rank_offset = node * system.count(NodeType::kGpu),
                       .sm_min = system.sm_min()});
  }
  Result<JoinedChannels> joined = join_nodes(cluster, {});
  EXPECT_TRUE(joined);
  return std::move(joined).value();
}

/// A1 and A2: the files that NCCL itself dumped for these machines.
void expect_dumped(const std::string& graphs, const NodeChannels& found, const System& system) {
  const Result<GivenChannels> given = parse_graphs(read_fixture(graphs), system, {});
  ASSERT_TRUE(given) << given.error().message();
  ASSERT_TRUE(given.value().ring && given.value().tree);
  for (const auto& [ours, theirs] : {std::pair(&found.ring, &*given.value().ring),
                                     std::pair(&found.tree, &*given.value().tree)}) {
    EXPECT_EQ(ours->pattern, theirs->pattern);
    EXPECT_EQ(ours->ranks, theirs->ranks);
    EXPECT_EQ(ours->nets, theirs->nets);
    EXPECT_EQ(ours->intra_type, theirs->intra_type);
    EXPECT_EQ(ours->inter_type, theirs->inter_type);
    EXPECT_EQ(ours->same_channels, theirs->same_channels);
    expect_speed(*ours, theirs->channels(), theirs->intra_gb_per_s, theirs->inter_gb_per_s);
  }
}

TEST(KnownChannels, A1FourA6000InOneNode) {
  const System system = load("pcie-4xa6000", false);
  expect_dumped("pcie-4xa6000-graph.xml", search_node(system, {}), system);
}

TEST(KnownChannels, A2Eight3090WithoutPeerAccessOverSeveralNodes) {
  TopoOptions options;
  options.reach.p2p = false;
  const System system = load("pcie-8x3090", true, options);
  expect_dumped("pcie-8x3090-graph.xml", search_node(system, options), system);
}

/// Release 2.6 had 22 GB/s for an NVLink where 20 stand today; the rings are the same.
TEST(KnownChannels, A3Dgx1HasTheSameSixRings) {
  const System system = load("dgx1v-reconstructed", false);
  const NodeChannels found = search_node(system, {});
  const Result<GivenChannels> given = parse_graphs(read_fixture("dgx1v-graph.xml"), system, {});
  ASSERT_TRUE(given) << given.error().message();
  EXPECT_EQ(found.ring.ranks, given.value().ring->ranks);
  expect_speed(found.ring, 6, 20, 20);
  EXPECT_FALSE(found.ring.same_channels);
  EXPECT_EQ(join(found, system, 1).channels(), 12);
}

TEST(KnownChannels, A4GraphFileOfAzureNcv4IsTaken) {
  const System system = load("azure-ncv4", false);
  const Result<GivenChannels> given =
      parse_graphs(read_fixture("azure-ncv4-graph.xml"), system, {});
  ASSERT_TRUE(given) << given.error().message();
  const NodeChannels found = search_node(system, {}, given.value());
  EXPECT_EQ(found.ring.ranks, (std::vector<std::vector<int>>{{0, 1, 2, 3}, {0, 3, 2, 1}}));
  expect_speed(found.ring, 2, 12, 12);
}

TEST(KnownChannels, B2HgxH100InOneNodeRuns24Channels) {
  const System system = load("azure-ndv5-completed", false);
  const NodeChannels found = search_node(system, {});
  expect_speed(found.ring, 12, 30, 30);
  EXPECT_EQ(found.ring.intra_type, PathType::kNvl);
  const JoinedChannels joined = join(found, system, 1);
  ASSERT_EQ(joined.channels(), 24);
  for (int channel = 0; channel < 24; ++channel) {
    EXPECT_EQ(joined.rings[static_cast<size_t>(channel)], upwards(0, 8));
    EXPECT_EQ(joined.trees[static_cast<size_t>(channel)].up,
              (std::vector<int>{-1, 0, 1, 2, 3, 4, 5, 6}));
  }
}

TEST(KnownChannels, B1HgxA100InOneNodeRuns24Channels) {
  const System system = load("azure-ndv4-completed", false);
  const NodeChannels found = search_node(system, {});
  EXPECT_FLOAT_EQ(system.max_gb_per_s, 240);
  EXPECT_FLOAT_EQ(system.total_gb_per_s, 240);
  EXPECT_EQ(join(found, system, 1).channels(), 24);
}

TEST(KnownChannels, B3HgxH800InOneNodeRuns16Channels) {
  const System system = load("hgx-h800", false);
  const NodeChannels found = search_node(system, {});
  expect_speed(found.ring, 8, 20, 20);
  const JoinedChannels joined = join(found, system, 1);
  EXPECT_EQ(joined.channels(), 16);
  EXPECT_EQ(joined.rings.front(), upwards(0, 8));
}

/// Consistent with report B12: 32 execution channels.
TEST(KnownChannels, B12B200InOneNodeRuns32Channels) {
  const System system = load("b200-vm-8gpu", false);
  const NodeChannels found = search_node(system, {});
  expect_speed(found.ring, 16, 45, 45);
  EXPECT_EQ(join(found, system, 1).channels(), 32);
}

TEST(KnownChannels, B8RingsAcrossTwoSocketsGoThroughTheCpus) {
  TopoOptions options;
  options.reach.p2p = false;
  const System system = load("pcie-8x3090", false, options);
  const NodeChannels found = search_node(system, options);
  expect_speed(found.ring, 1, 5, 5);
  EXPECT_EQ(found.ring.intra_type, PathType::kSys);
  EXPECT_EQ(found.ring.ranks.front(), upwards(0, 8));
}

TEST(KnownChannels, C1AwsP4dEntersAndLeavesByTheGpusBesideTheNic) {
  const System system = load("aws-p4d-completed", true);
  const NodeChannels found = search_node(system, {});
  expect_speed(found.ring, 4, 12, 12);
  EXPECT_EQ(found.ring.intra_type, PathType::kNvl);
  EXPECT_EQ(found.ring.inter_type, PathType::kPix);
  for (int channel = 0; channel < 4; ++channel) {
    const std::vector<int>& ranks = found.ring.ranks[static_cast<size_t>(channel)];
    EXPECT_EQ(found.ring.nets[static_cast<size_t>(channel)],
              (ChannelNets{.in = channel, .out = channel}));
    EXPECT_EQ(ranks.front(), 2 * channel);
    EXPECT_EQ(ranks.back(), 2 * channel + 1);
    EXPECT_EQ(found.tree.ranks[static_cast<size_t>(channel)].front(), 2 * channel);
  }
  const JoinedChannels joined = join(found, system, 2);
  ASSERT_EQ(joined.channels(), 8);
  EXPECT_EQ(joined.rings[0],
            (std::vector<int>{0, 7, 6, 5, 4, 3, 2, 1, 8, 15, 14, 13, 12, 11, 10, 9}));
  EXPECT_EQ(joined.rings[2],
            (std::vector<int>{0, 7, 6, 5, 12, 11, 10, 9, 8, 15, 14, 13, 4, 3, 2, 1}));
  EXPECT_EQ(joined.trees[0].down[0], (std::array<int, 3>{1, 8, -1}));
  EXPECT_EQ(joined.trees[4].up[0], 8);
  EXPECT_EQ(joined.trees[4].down[8], (std::array<int, 3>{9, 0, -1}));
  EXPECT_EQ(joined.trees[1].down[2], (std::array<int, 3>{3, 10, -1}));
}

TEST(KnownChannels, C4PairsOfChannelsSwapNicsBetweenTwoNodes) {
  const System system = load("azure-ndv5-completed", true);
  const NodeChannels found = search_node(system, {});
  expect_speed(found.ring, 8, 48, 48);
  EXPECT_EQ(found.ring.cross_nic, 2);
  EXPECT_EQ(found.ring.ranks[0], downwards(0, 8));
  EXPECT_EQ(found.ring.ranks[1], upwards(1, 8));
  EXPECT_EQ(found.ring.nets[0], (ChannelNets{.in = 0, .out = 1}));
  EXPECT_EQ(found.ring.nets[1], (ChannelNets{.in = 1, .out = 0}));
  const JoinedChannels joined = join(found, system, 2);
  ASSERT_EQ(joined.channels(), 16);
  EXPECT_EQ(joined.rings[1],
            (std::vector<int>{0, 8, 15, 14, 13, 12, 11, 10, 9, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(joined.rings[2],
            (std::vector<int>{0, 7, 6, 5, 4, 3, 11, 12, 13, 14, 15, 8, 9, 10, 2, 1}));
  EXPECT_EQ(joined.rings[3],
            (std::vector<int>{0, 1, 2, 10, 9, 8, 15, 14, 13, 12, 11, 3, 4, 5, 6, 7}));
  EXPECT_EQ(joined.rings[4],
            (std::vector<int>{0, 7, 6, 5, 13, 14, 15, 8, 9, 10, 11, 12, 4, 3, 2, 1}));
  EXPECT_EQ(joined.rings[5],
            (std::vector<int>{0, 1, 2, 3, 4, 12, 11, 10, 9, 8, 15, 14, 13, 5, 6, 7}));
  ASSERT_EQ(found.nvls.channels(), 8);
  for (int head = 0; head < 8; ++head) {
    EXPECT_EQ(found.nvls.ranks[static_cast<size_t>(head)], std::vector<int>{head});
  }
}

TEST(KnownChannels, C10TreesOfTwoHgxNodes) {
  const System system = load("azure-ndv5-completed", true);
  const NodeChannels found = search_node(system, {});
  expect_speed(found.tree, 8, 48, 48);
  EXPECT_EQ(found.tree.pattern, Pattern::kTree);
  const JoinedChannels joined = join(found, system, 2);
  EXPECT_EQ(joined.trees[5].down[5], (std::array<int, 3>{6, 13, -1}));
  EXPECT_EQ(joined.trees[5].up[5], -1);
  EXPECT_EQ(joined.trees[13].down[5], (std::array<int, 3>{6, -1, -1}));
  EXPECT_EQ(joined.trees[13].up[5], 13);
  EXPECT_EQ(joined.trees[6].down[5], (std::array<int, 3>{-1, -1, -1}));
  EXPECT_EQ(joined.trees[6].up[5], 4);
  EXPECT_EQ(joined.trees[0].down[8], (std::array<int, 3>{9, -1, -1}));
  EXPECT_EQ(joined.trees[0].up[8], 0);
  EXPECT_EQ(joined.trees[1].up[8], 15);
}

TEST(KnownChannels, C3RingsStayOnTheirRailWithoutCrossNic) {
  TopoOptions options;
  options.cross_nic = 0;
  const System system = load("azure-ndv5-completed", true, options);
  const NodeChannels found = search_node(system, options);
  expect_speed(found.ring, 8, 45, 45);
  EXPECT_EQ(found.ring.inter_type, PathType::kPxn);
  for (int channel = 0; channel < 8; ++channel) {
    EXPECT_EQ(found.ring.ranks[static_cast<size_t>(channel)], downwards(channel, 8));
    EXPECT_EQ(found.ring.nets[static_cast<size_t>(channel)],
              (ChannelNets{.in = channel, .out = channel}));
  }
  EXPECT_EQ(join(found, system, 3).channels(), 16);
}

TEST(KnownChannels, CrossNic1GoesToTheNextNic) {
  TopoOptions options;
  options.cross_nic = 1;
  const System system = load("azure-ndv5-completed", true, options);
  const NodeChannels found = search_node(system, options);
  expect_speed(found.ring, 8, 48, 48);
  for (int channel = 0; channel < 8; ++channel) {
    EXPECT_EQ(found.ring.ranks[static_cast<size_t>(channel)], downwards(channel, 8));
    EXPECT_EQ(found.ring.nets[static_cast<size_t>(channel)],
              (ChannelNets{.in = channel, .out = (channel + 1) % 8}));
  }
}

/// Without a public log: results of this implementation, to detect regressions.
TEST(KnownChannels, MachinesWithoutPublicLog) {
  TopoOptions no_p2p;
  no_p2p.reach.p2p = false;
  const NodeChannels bridge = search_node(load("nvbridge-2xa100", false), {});
  expect_speed(bridge.ring, 12, 20, 20);
  expect_speed(bridge.tree, 12, 40, 40);
  const NodeChannels epyc = search_node(load("epyc-2x4090", false, no_p2p), no_p2p);
  expect_speed(epyc.ring, 1, 15, 15);
  EXPECT_EQ(epyc.ring.intra_type, PathType::kSys);
  const NodeChannels dgx = search_node(load("dgx1v-reconstructed", true), {});
  expect_speed(dgx.ring, 4, 12, 12);
  EXPECT_EQ(dgx.ring.ranks, (std::vector<std::vector<int>>{{0, 3, 2, 6, 7, 4, 5, 1},
                                                           {2, 1, 0, 4, 6, 5, 7, 3},
                                                           {4, 7, 6, 2, 3, 0, 1, 5},
                                                           {6, 5, 4, 0, 2, 1, 3, 7}}));
  expect_speed(dgx.tree, 4, 20, 12);
  const NodeChannels ndv4 = search_node(load("azure-ndv4-completed", true), {});
  expect_speed(ndv4.ring, 8, 24, 24);
  EXPECT_EQ(ndv4.ring.ranks.front(), (std::vector<int>{2, 5, 4, 7, 6, 1, 0, 3}));
  EXPECT_EQ(ndv4.ring.nets.front(), (ChannelNets{.in = 2, .out = 2}));
  expect_speed(ndv4.tree, 8, 30, 24);
  const NodeChannels h800 = search_node(load("hgx-h800", true), {});
  expect_speed(h800.ring, 8, 22, 22);
  EXPECT_EQ(h800.ring.cross_nic, 2);
  EXPECT_EQ(h800.tree.pattern, Pattern::kTree);
  TopoOptions stay;
  stay.net_disable_intra = true;
  const NodeChannels l20 = search_node(load("pcie-16xl20", false, stay), stay);
  expect_speed(l20.ring, 1, 20, 20);
  EXPECT_EQ(l20.ring.ranks.front(), upwards(0, 16));
}

}  // namespace
}  // namespace plexus::testing
