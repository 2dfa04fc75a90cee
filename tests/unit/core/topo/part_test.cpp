// SPDX-License-Identifier: Apache-2.0
#include "core/topo/part.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/topo/graph_file.hpp"
#include "core/topo/machine_xml.hpp"
#include "core/topo/settings.hpp"
#include "core/topo/system.hpp"

namespace plexus::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kTwoNumaNodes = R"(<system version="1">
  <cpu numaid="0" affinity="000000ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:17:00.0" class="0x020000" link_speed="16.0 GT/s PCIe" link_width="16">
      <nic>
        <net name="mlx5_0" dev="7" speed="100000" port="1" gdr="0" maxconn="64"/>
        <net name="mlx5_9" dev="8" speed="100000" port="1" gdr="0" maxconn="64"/>
      </nic>
    </pci>
    <host rank="99"/>
  </cpu>
  <cpu numaid="1" affinity="0000ff00" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:b1:00.0" class="0x020000" link_speed="16.0 GT/s PCIe" link_width="16"/>
  </cpu>
</system>)";

std::vector<HostRank> six_ranks() {
  return {{.rank = 0, .numa = 1},  {.rank = 3, .numa = 0},  {.rank = 4, .numa = 1},
          {.rank = 10, .numa = 0}, {.rank = 11, .numa = 0}, {.rank = 12, .numa = 1}};
}

XmlElement filled(const std::vector<HostRank>& ranks, const std::vector<NetPort>& nets = {}) {
  Result<XmlElement> machine = parse_machine(kTwoNumaNodes);
  EXPECT_TRUE(machine) << machine.error().message();
  Result<XmlElement> full = fill_template(std::move(machine).value(), ranks, nets);
  EXPECT_TRUE(full) << full.error().message();
  return std::move(full).value();
}

PartChannels searched(const std::vector<HostRank>& ranks) {
  Result<PartChannels> part =
      search_part(filled(ranks), {.ranks = ranks, .inter = false, .options = {}, .graphs = {}});
  EXPECT_TRUE(part) << part.error().message();
  return std::move(part).value();
}

TEST(Part, OneRankOfEachNumaNodeRepresentsTheOthers) {
  const Representatives chosen = choose_representatives(six_ranks());
  EXPECT_THAT(chosen.ranks, ElementsAre(0, 3));
  EXPECT_THAT(chosen.followers, ElementsAre(ElementsAre(4, 12), ElementsAre(10, 11)));
}

TEST(Part, RanksOfANumaNodeStandTogetherInEveryChannel) {
  const std::vector<HostRank> ranks = six_ranks();
  const NodeChannels all = expand(searched(ranks), ranks);
  ASSERT_GE(all.ring.channels(), 1);
  for (const std::vector<int>& order : all.ring.ranks) {
    ASSERT_EQ(order.size(), ranks.size());
    int changes = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const auto numa_of = [&](int rank) { return rank == 3 || rank == 10 || rank == 11 ? 0 : 1; };
      changes += numa_of(order[i]) != numa_of(order[(i + 1) % order.size()]) ? 1 : 0;
    }
    EXPECT_EQ(changes, 2);
  }
}

TEST(Part, AThousandRanksCostWhatOneOfEachNumaNodeDoes) {
  std::vector<HostRank> ranks;
  for (int rank = 0; rank < 4096; ++rank) {
    ranks.push_back({.rank = rank, .numa = rank % 2});
  }
  const PartChannels part = searched(ranks);
  EXPECT_EQ(part.found.ring.ranks.front().size(), 2U);
  EXPECT_EQ(expand(part, ranks).ring.ranks.front().size(), ranks.size());
  EXPECT_LT(encode(part, ranks).size(), 4096U);
}

TEST(Part, MessageGivesTheSameChannels) {
  const std::vector<HostRank> ranks = six_ranks();
  const PartChannels part = searched(ranks);
  const Result<PartChannels> again = decode_part(encode(part, ranks), ranks);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again.value().found.ring.ranks, part.found.ring.ranks);
  EXPECT_EQ(again.value().found.tree.ranks, part.found.tree.ranks);
  EXPECT_EQ(again.value().found.ring.nets, part.found.ring.nets);
  EXPECT_EQ(again.value().found.ring.intra_gb_per_s, part.found.ring.intra_gb_per_s);
  EXPECT_EQ(again.value().found.tree.pattern, part.found.tree.pattern);
}

TEST(Part, EveryCutOrChangedMessageIsRefusedOrStillHasEachRankOnce) {
  const std::vector<HostRank> ranks = six_ranks();
  const std::string good = encode(searched(ranks), ranks);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(decode_part(std::string_view(good).substr(0, size), ranks)) << size;
  }
  EXPECT_FALSE(decode_part(good + "x", ranks));
  for (size_t at = 0; at < good.size(); ++at) {
    for (const char value : {'\x00', '\x01', '\x7f', '\xff'}) {
      std::string bad = good;
      bad[at] = value;
      const Result<PartChannels> part = decode_part(bad, ranks);
      if (!part) {
        EXPECT_THAT(std::string(part.error().message()), HasSubstr("same version"));
        continue;
      }
      for (std::vector<int> order : expand(part.value(), ranks).ring.ranks) {
        std::sort(order.begin(), order.end());
        EXPECT_THAT(order, ElementsAre(0, 3, 4, 10, 11, 12));
      }
    }
  }
}

TEST(Part, GraphFileDecidesTheOrder) {
  const std::vector<HostRank> ranks = six_ranks();
  const XmlElement machine = filled(ranks);
  const Result<System> system = build_system(machine);
  ASSERT_TRUE(system) << system.error().message();
  NodeChannels wished = expand(searched(ranks), ranks);
  for (ChannelGraph* const graph : {&wished.ring, &wished.tree}) {
    graph->ranks = {{12, 3, 0, 11, 4, 10}};
    graph->nets.resize(1);
  }
  const Result<PartChannels> part =
      search_part(machine, {.ranks = ranks,
                            .inter = false,
                            .options = {},
                            .graphs = format_graphs(wished, system.value())});
  ASSERT_TRUE(part) << part.error().message();
  const Result<PartChannels> again = decode_part(encode(part.value(), ranks), ranks);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_THAT(expand(again.value(), ranks).ring.ranks,
              ElementsAre(ElementsAre(12, 3, 0, 11, 4, 10)));
}

TEST(Part, TemplateGetsTheRanksAndNicsOfThisHost) {
  std::vector<NetPort> nets(3);
  nets[0] = {.name = "mlx5_9", .pci_path = "", .speed_mbit_per_s = 25'000, .rail = 1};
  nets[1] = {.name = "eth1", .pci_path = "/sys/devices/pci0000:b0/0000:b1:00.0/net"};
  nets[2] = {.name = "virtual0", .pci_path = ""};
  const XmlElement machine = filled(six_ranks(), nets);
  const Result<System> system = build_system(machine);
  ASSERT_TRUE(system) << system.error().message();
  ASSERT_EQ(system.value().count(NodeType::kNet), 3);
  EXPECT_EQ(system.value().count(NodeType::kGpu), 6);
  const auto cpu_of = [&](int net) {
    System with_paths = system.value();
    for (int at = 0; at < 3; ++at) {
      if (with_paths.node(NodeType::kNet, at).net.device == net) {
        return with_paths.node(NodeType::kNet, at).net.name;
      }
    }
    return std::string();
  };
  EXPECT_EQ(cpu_of(0), "mlx5_9");
  EXPECT_EQ(cpu_of(1), "eth1");
  EXPECT_EQ(cpu_of(2), "virtual0");
  const XmlElement& nic = machine.children[0].children[0].children[0];
  ASSERT_EQ(nic.children.size(), 1U) << "a NIC that the network does not have is dropped";
  EXPECT_EQ(*nic.children[0].find("speed"), "25000");
  EXPECT_EQ(*nic.children[0].find("rail"), "1");
  EXPECT_EQ(*machine.children[1].children[0].children[0].children[0].find("name"), "eth1");
}

TEST(Part, TemplateWithoutCpuIsRefused) {
  Result<XmlElement> machine = parse_machine("<system version=\"1\"/>");
  ASSERT_TRUE(machine);
  const Result<XmlElement> full = fill_template(std::move(machine).value(), six_ranks(), {});
  ASSERT_FALSE(full);
  EXPECT_THAT(std::string(full.error().message()), HasSubstr("no <cpu>"));
}

TEST(TopoSettings, LevelsAreNamesOrOldNumbers) {
  Config config;
  config.p2p_level = "PHB";
  config.net_gdr_level = "2";
  const Result<TopoOptions> options = read_topo_options(config);
  ASSERT_TRUE(options) << options.error().message();
  EXPECT_EQ(options.value().p2p_level, PathType::kPhb);
  EXPECT_EQ(options.value().net_gdr_level, PathType::kPxb);
  config.p2p_disable = true;
  EXPECT_EQ(read_topo_options(config).value().p2p_level, PathType::kLoc);
}

TEST(TopoSettings, WhatIsNoLevelIsRefusedByName) {
  for (const char* const wrong : {"6", "-1", "NET", "pix ", "10", "/"}) {
    Config config;
    config.net_gdr_level = wrong;
    const Result<TopoOptions> options = read_topo_options(config);
    ASSERT_FALSE(options) << wrong;
    EXPECT_THAT(std::string(options.error().message()), HasSubstr("NCCL_NET_GDR_LEVEL"));
  }
}

TEST(TopoSettings, PolicySaysHowManyNics) {
  Config config;
  config.netdevs_policy = "MAX:3";
  const Result<TopoOptions> options = read_topo_options(config);
  ASSERT_TRUE(options) << options.error().message();
  EXPECT_EQ(options.value().nets_policy, NetPolicy::kMax);
  EXPECT_EQ(options.value().nets_per_gpu_max, 3);
  for (const char* const wrong : {"MAX:", "MAX:0", "MAX:x", "FEW", "MAX"}) {
    config.netdevs_policy = wrong;
    EXPECT_FALSE(read_topo_options(config)) << wrong;
  }
}

TEST(Part, RanksOfAGpuStandTogetherOnIt) {
  const HostRank on_first{.rank = 0, .numa = 0, .bus_id = "0000:3b:00.0", .device = 0, .sm = 90};
  HostRank also_on_first = on_first;
  also_on_first.rank = 2;
  HostRank on_second = on_first;
  on_second.rank = 1;
  on_second.bus_id = "0000:d8:00.0";
  const std::vector<HostRank> ranks = {on_first, on_second, also_on_first, {.rank = 3, .numa = 1}};
  EXPECT_THAT(choose_representatives(ranks).ranks, ElementsAre(0, 1, 3));
  const NodeChannels all = expand(searched(ranks), ranks);
  ASSERT_GE(all.ring.channels(), 1);
  for (const std::vector<int>& order : all.ring.ranks) {
    ASSERT_EQ(order.size(), ranks.size());
    const auto first = std::find(order.begin(), order.end(), 0);
    ASSERT_NE(std::next(first), order.end());
    EXPECT_EQ(*std::next(first), 2);
  }
}

}  // namespace
}  // namespace plexus::testing
