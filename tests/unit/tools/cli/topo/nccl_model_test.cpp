// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/topo/nccl_model.hpp"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "core/topo/machine_xml.hpp"

namespace plexus {
namespace {

using enum NcclCollective;

const NcclAlternative* find(const NcclModel& model,
                            NcclCollective collective,
                            NcclAlgorithm algorithm,
                            NcclProtocol protocol) {
  for (const NcclAlternative& alternative : model.alternatives(collective)) {
    if (alternative.algorithm == algorithm && alternative.protocol == protocol) {
      return &alternative;
    }
  }
  return nullptr;
}

std::string choice(const NcclModel& model, NcclCollective collective, size_t bytes) {
  const NcclAlternative& alternative = model.choose(collective, bytes);
  return std::string(name(alternative.algorithm)) + "/" + name(alternative.protocol);
}

// Two ranks that share one GPU and use sockets, as two hosts. NCCL 2.29.7 printed its model of them
// and its choices (public: eunomia-bpf/nccl-eBPF at 14f9bca8, docs/tmp). Its graphs: a ring of
// 2.4 GB/s, a tree of 4.8 GB/s whose first GPU has all of the NIC's traffic.
NcclModel two_over_sockets() {
  const auto graph = [](double gb_per_s, Pattern pattern) {
    return NcclGraph{.channels = 2,
                     .intra_gb_per_s = gb_per_s,
                     .inter_gb_per_s = gb_per_s,
                     .intra_type = PathType::kLoc,
                     .inter_type = PathType::kPhb,
                     .pattern = pattern,
                     .same_channels = true};
  };
  return NcclModel({.ranks = 2,
                    .nodes = 2,
                    .channels = 4,
                    .sm_min = 120,
                    .sm_max = 120,
                    .ring = graph(1.2, Pattern::kRing),
                    .tree = graph(2.4, Pattern::kTree)});
}

TEST(NcclModel, HasTheTimesThatNcclPrintsForTwoHostsOverSockets) {  // rounded to tenths by it
  const NcclModel model = two_over_sockets();
  constexpr auto kRing = NcclAlgorithm::kRing;
  constexpr auto kTree = NcclAlgorithm::kTree;
  constexpr auto kPat = NcclAlgorithm::kPat;
  constexpr auto kLL = NcclProtocol::kLL;
  constexpr auto kSimple = NcclProtocol::kSimple;
  const struct {
    NcclCollective collective;
    NcclAlgorithm algorithm;
    NcclProtocol protocol;
    double latency_us;
    double gb_per_s;
  } rows[] = {{kBroadcast, kRing, kLL, 9.3, 1.2},      {kBroadcast, kRing, kSimple, 22.4, 2.4},
              {kReduce, kRing, kLL, 9.3, 1.2},         {kReduce, kRing, kSimple, 22.4, 2.4},
              {kAllGather, kRing, kLL, 11.6, 2.4},     {kAllGather, kRing, kSimple, 22.4, 4.8},
              {kReduceScatter, kRing, kLL, 11.6, 2.4}, {kReduceScatter, kRing, kSimple, 22.4, 4.8},
              {kAllReduce, kTree, kLL, 16.8, 0.5},     {kAllReduce, kTree, kSimple, 36.4, 1.9},
              {kAllReduce, kRing, kLL, 16.6, 1.2},     {kAllReduce, kRing, kSimple, 36.4, 2.4},
              {kAllGather, kPat, kSimple, 17.6, 3.6},  {kReduceScatter, kPat, kSimple, 17.6, 3.6}};
  size_t found = 0;
  for (const auto& row : rows) {
    const NcclAlternative* const alternative =
        find(model, row.collective, row.algorithm, row.protocol);
    ASSERT_NE(alternative, nullptr) << name(row.collective) << " " << name(row.algorithm);
    EXPECT_NEAR(alternative->latency_us, row.latency_us, 0.05)
        << name(row.collective) << " " << name(row.algorithm) << " " << name(row.protocol);
    EXPECT_NEAR(alternative->gb_per_s, row.gb_per_s, 0.05)
        << name(row.collective) << " " << name(row.algorithm) << " " << name(row.protocol);
  }
  for (size_t collective = 0; collective < kNcclCollectives; ++collective) {
    found += model.alternatives(static_cast<NcclCollective>(collective)).size();
  }
  EXPECT_EQ(found, std::size(rows)) << "the rest has no bandwidth there";
}

TEST(NcclModel, ChoosesWhatNcclChoseForTwoHostsOverSockets) {
  const NcclModel model = two_over_sockets();
  const auto expect = [&](NcclCollective collective, size_t first, size_t last,
                          const char* alternative) {
    for (size_t bytes = first; bytes <= last; bytes *= 2) {
      // for an all-gather the log has what a rank sends
      const size_t all = bytes * (collective == kAllGather ? 2 : 1);
      EXPECT_EQ(choice(model, collective, all), alternative) << name(collective) << " " << bytes;
    }
  };
  expect(kBroadcast, 1024, 16384, "ring/LL");
  expect(kBroadcast, 32768, 134217728, "ring/Simple");
  expect(kAllGather, 16, 16384, "ring/LL");
  expect(kAllGather, 32768, 32768, "pat/Simple");
  expect(kAllGather, 65536, 67108864, "ring/Simple");
  expect(kAllReduce, 131072, 524288, "ring/Simple");
}

NcclGraph nvlink(int channels, double intra, double inter, Pattern pattern, bool same) {
  return {.channels = channels,
          .intra_gb_per_s = intra,
          .inter_gb_per_s = inter,
          .intra_type = PathType::kNvl,
          .inter_type = PathType::kPix,
          .pattern = pattern,
          .same_channels = same};
}

// The channels that core/topo finds on 8 H100 behind NVLink switches, a NIC of 400 Gbit/s each.
NcclCluster h100(int nodes) {
  NcclCluster cluster{.ranks = 8 * nodes, .nodes = nodes, .sm_min = 90, .sm_max = 90};
  cluster.channels = nodes == 1 ? 24 : 16;
  if (nodes == 1) {
    cluster.ring = nvlink(12, 30, 30, Pattern::kRing, true);
    cluster.tree = nvlink(12, 30, 30, Pattern::kBalancedTree, true);
    cluster.nvls = nvlink(8, 40, 60, Pattern::kNvls, false);
  } else {
    cluster.ring = nvlink(8, 48, 48, Pattern::kRing, false);
    cluster.tree = nvlink(8, 48, 48, Pattern::kTree, false);
    cluster.nvls = nvlink(8, 40, 48, Pattern::kNvls, false);
  }
  return cluster;
}

// Public logs of NCCL's choices on 8 H100: of 2.30.7, and of 2.26.2 on another machine.
TEST(NcclModel, AllReduceOnEightH100IsARingAndThenTheSwitch) {
  const NcclModel model(h100(1));
  for (size_t bytes = 256; bytes <= size_t{1} << 20; bytes *= 2) {
    EXPECT_EQ(choice(model, kAllReduce, bytes), "ring/LL") << bytes;
  }
  for (size_t bytes = size_t{2} << 20; bytes <= size_t{1} << 34; bytes *= 2) {
    EXPECT_EQ(choice(model, kAllReduce, bytes), "nvls/Simple") << bytes;
  }
}

// Logged predictions of three such nodes: 25.200462 us for 4 bytes, 25.495272 us for 2 KiB.
TEST(NcclModel, OfATreeOverThreeNodesAreTheLoggedOnes) {
  const NcclModel model(h100(3));
  EXPECT_EQ(choice(model, kAllReduce, 4), "tree/LL");
  EXPECT_EQ(choice(model, kAllReduce, 2048), "tree/LL");
  const auto predicted_us = [&](size_t bytes) {
    return model.time_us(kAllReduce, model.choose(kAllReduce, bytes), bytes);
  };
  EXPECT_NEAR(predicted_us(4), 25.200462, 1e-5);
  EXPECT_NEAR(predicted_us(2048), 25.495272, 1e-4);
}

TEST(NcclModel, ABroadcastIsOneHopOnlyWhereChannelsAreTheSame) {
  const auto latency_us = [](int nodes) {
    const NcclModel model(h100(nodes));
    return find(model, kBroadcast, NcclAlgorithm::kRing, NcclProtocol::kSimple)->latency_us;
  };
  EXPECT_DOUBLE_EQ(latency_us(1), 8.4 + 3.4);
  EXPECT_DOUBLE_EQ(latency_us(2), 8.4 + 16 * 14);
}

TEST(NcclModel, LL128NeedsLinksThatKeepTheOrderOfStores) {
  NcclCluster cluster = h100(1);
  const auto has_ring_ll128 = [](const NcclCluster& one) {
    return find(NcclModel(one), kAllReduce, NcclAlgorithm::kRing, NcclProtocol::kLL128) != nullptr;
  };
  EXPECT_TRUE(has_ring_ll128(cluster));
  cluster.ring.inter_type = PathType::kPxn;
  EXPECT_TRUE(has_ring_ll128(cluster)) << "from Hopper on";
  cluster.sm_min = cluster.sm_max = 80;
  EXPECT_FALSE(has_ring_ll128(cluster));
  cluster.ring.inter_type = PathType::kPxb;
  EXPECT_TRUE(has_ring_ll128(cluster));
  cluster.sm_max = 86;
  EXPECT_FALSE(has_ring_ll128(cluster)) << "GPUs of two kinds";
  cluster.sm_max = 80;
  cluster.ring.intra_type = PathType::kPhb;
  EXPECT_FALSE(has_ring_ll128(cluster));
}

TEST(NcclModel, ReadTheCpusAndTheChannelsOfACluster) {
  const XmlElement machine = parse_machine(R"(<system version="1">
<cpu numaid="0" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49">
  <pci busid="0001:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16">
    <gpu dev="0" sm="80" rank="0" gdr="1"/></pci>
  <pci busid="0002:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16">
    <gpu dev="1" sm="86" rank="1" gdr="1"/></pci>
  <nic><net name="a" dev="0" speed="100000" port="1" guid="0x1" maxconn="64" gdr="1"/></nic>
</cpu></system>)")
                                 .value();
  ClusterRequest request;
  request.machines = 3;
  const auto cluster = plan_cluster(machine, request);
  ASSERT_TRUE(cluster) << cluster.error().message();
  const NcclCluster described = describe_for_nccl(cluster.value());
  EXPECT_EQ(described.ranks, 6);
  EXPECT_EQ(described.nodes, 3);
  EXPECT_EQ(described.sm_min, 80);
  EXPECT_EQ(described.sm_max, 86);
  EXPECT_TRUE(described.any_amd);
  EXPECT_EQ(described.nvls.channels, 0);
  EXPECT_EQ(described.ring.channels, cluster.value().joined.search_channels);
  EXPECT_EQ(described.channels, cluster.value().joined.channels());
  const NcclModel model(described);
  EXPECT_EQ(find(model, kAllGather, NcclAlgorithm::kPat, NcclProtocol::kSimple), nullptr)
      << "two ranks on a node";
}

}  // namespace
}  // namespace plexus
