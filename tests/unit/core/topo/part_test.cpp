// SPDX-License-Identifier: Apache-2.0
#include "core/topo/part.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/topo/cluster.hpp"
#include "core/topo/graph_file.hpp"
#include "core/topo/machine_xml.hpp"
#include "core/topo/settings.hpp"
#include "core/topo/system.hpp"
#include "tests/unit/core/topo/broken_gpu.hpp"

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

/// The only part of these ranks.
std::vector<PartChannels> searched(const std::vector<HostRank>& ranks) {
  Result<HostChannels> host =
      search_host(filled(ranks), {.ranks = ranks, .inter = false, .options = {}, .graphs = {}});
  EXPECT_TRUE(host) << host.error().message();
  EXPECT_EQ(host.value().parts.size(), 1U);
  return std::move(host.value().parts);
}

void expect_equal(const PartChannels& left, const PartChannels& right) {
  EXPECT_EQ(left.found.ring.ranks, right.found.ring.ranks);
  EXPECT_EQ(left.found.tree.ranks, right.found.tree.ranks);
  EXPECT_EQ(left.found.ring.nets, right.found.ring.nets);
  EXPECT_EQ(left.found.ring.intra_gb_per_s, right.found.ring.intra_gb_per_s);
  EXPECT_EQ(left.found.tree.pattern, right.found.tree.pattern);
}

TEST(Part, OneRankOfEachNumaNodeRepresentsTheOthers) {
  const Representatives chosen = choose_representatives(six_ranks());
  EXPECT_THAT(chosen.ranks, ElementsAre(0, 3));
  EXPECT_THAT(chosen.followers, ElementsAre(ElementsAre(4, 12), ElementsAre(10, 11)));
}

TEST(Part, RanksOfANumaNodeStandTogetherInEveryChannel) {
  const std::vector<HostRank> ranks = six_ranks();
  const NodeChannels all = expand(searched(ranks).front());
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
  const std::vector<PartChannels> parts = searched(ranks);
  EXPECT_EQ(parts[0].found.ring.ranks.front().size(), 2U);
  EXPECT_EQ(expand(parts[0]).ring.ranks.front().size(), ranks.size());
  EXPECT_LT(encode(parts, ranks).size(), 4096U);
}

TEST(Part, MessageGivesTheSameChannels) {
  const std::vector<HostRank> ranks = six_ranks();
  const std::vector<PartChannels> parts = searched(ranks);
  const auto again = decode_parts(encode(parts, ranks), ranks);
  ASSERT_TRUE(again) << again.error().message();
  ASSERT_EQ(again.value().size(), 1U);
  expect_equal(again.value()[0], parts[0]);
}

TEST(Part, EveryCutOrChangedMessageIsRefusedOrStillHasEachRankOnce) {
  const std::vector<HostRank> ranks = six_ranks();
  const std::string good = encode(searched(ranks), ranks);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(decode_parts(std::string_view(good).substr(0, size), ranks)) << size;
  }
  EXPECT_FALSE(decode_parts(good + "x", ranks));
  for (size_t at = 0; at < good.size(); ++at) {
    for (const char value : {'\x00', '\x01', '\x7f', '\xff'}) {
      std::string bad = good;
      bad[at] = value;
      const auto parts = decode_parts(bad, ranks);
      if (!parts) {
        EXPECT_THAT(std::string(parts.error().message()), HasSubstr("same version"));
        continue;
      }
      ASSERT_EQ(parts.value().size(), 1U) << "the second part's channels would be missing";
      for (std::vector<int> order : expand(parts.value()[0]).ring.ranks) {
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
  NodeChannels wished = expand(searched(ranks).front());
  for (ChannelGraph* const graph : {&wished.ring, &wished.tree}) {
    graph->ranks = {{12, 3, 0, 11, 4, 10}};
    graph->nets.resize(1);
  }
  const Result<HostChannels> host =
      search_host(machine, {.ranks = ranks,
                            .inter = false,
                            .options = {},
                            .graphs = format_graphs(wished, system.value())});
  ASSERT_TRUE(host) << host.error().message();
  const auto again = decode_parts(encode(host.value().parts, ranks), ranks);
  ASSERT_TRUE(again) << again.error().message();
  ASSERT_EQ(again.value().size(), 1U);
  EXPECT_THAT(expand(again.value()[0]).ring.ranks, ElementsAre(ElementsAre(12, 3, 0, 11, 4, 10)));
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

/// A file whose virtual NIC is below both CPUs is good for `plexus topo` and for a communicator.
TEST(Part, FileThatDescribesANicTwiceIsTaken) {
  const std::string port = R"(<nic><net name="veth0" dev="3"/></nic>)";
  const std::string text =
      fmt::format(R"(<system version="1"><cpu numaid="0" arch="arm64">{0}<host rank="0"/></cpu>)"
                  R"(<cpu numaid="1" arch="arm64">{0}<host rank="1"/></cpu></system>)",
                  port);
  const XmlElement file = parse_machine(text).value();
  ClusterRequest request;
  request.machines = 2;
  const auto planned = plan_cluster(file, request);
  ASSERT_TRUE(planned) << planned.error().message();
  EXPECT_EQ(planned.value().joined.ranks, 4);
  const std::vector<HostRank> ranks = {{.rank = 0, .numa = 0}, {.rank = 1, .numa = 1}};
  const std::vector<NetPort> nets = {{.name = "veth0", .pci_path = ""}};
  const XmlElement filled_in = fill_template(file, ranks, nets).value();
  EXPECT_EQ(build_system(filled_in).value().count(NodeType::kNet), 1);
  EXPECT_TRUE(search_host(filled_in, {.ranks = ranks, .inter = true, .options = {}, .graphs = {}}));
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
  const NodeChannels all = expand(searched(ranks).front());
  ASSERT_GE(all.ring.channels(), 1);
  for (const std::vector<int>& order : all.ring.ranks) {
    ASSERT_EQ(order.size(), ranks.size());
    const auto first = std::find(order.begin(), order.end(), 0);
    ASSERT_NE(std::next(first), order.end());
    EXPECT_EQ(*std::next(first), 2);
  }
}

XmlElement with_broken_gpu(const std::vector<HostRank>& ranks) {
  std::vector<NetPort> nets(2);
  nets[0] = {.name = "mlx5_0", .pci_path = "", .speed_mbit_per_s = 200'000, .gdr = true};
  nets[1] = {.name = "mlx5_1", .pci_path = "", .speed_mbit_per_s = 200'000, .gdr = true};
  return fill_template(parse_machine(machine_with_broken_gpu(2)).value(), ranks, nets).value();
}

std::vector<HostRank> four_gpus() {
  std::vector<HostRank> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back({.rank = rank,
                     .numa = rank / 2,
                     .bus_id = fmt::format("0000:1{}:00.0", rank),
                     .device = rank,
                     .sm = 80});
  }
  return ranks;
}

TEST(Part, GpuWithoutNvlinksIsAPartOfItsOwnAndNamed) {
  const std::vector<HostRank> ranks = four_gpus();
  const Result<HostChannels> host = search_host(
      with_broken_gpu(ranks), {.ranks = ranks, .inter = true, .options = {}, .graphs = {}});
  ASSERT_TRUE(host) << host.error().message();
  const std::vector<PartChannels>& parts = host.value().parts;
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_GE(parts[0].found.ring.channels(), 2);
  EXPECT_EQ(parts[0].found.ring.intra_type, PathType::kNvl);
  EXPECT_THAT(parts[1].found.ring.ranks, ::testing::Each(ElementsAre(2)));
  EXPECT_THAT(host.value().warnings,
              ElementsAre(HasSubstr("GPU 2 (0000:12:00.0, rank 2) has no NVLink")));
  const auto again = decode_parts(encode(parts, ranks), ranks);
  ASSERT_TRUE(again) << again.error().message();
  ASSERT_EQ(again.value().size(), 2U);
  expect_equal(again.value()[0], parts[0]);
  expect_equal(again.value()[1], parts[1]);
  EXPECT_THAT(again.value()[1].ranks, ElementsAre(::testing::Field(&HostRank::rank, 2)));
}

TEST(Part, RanksOfABrokenGpuGoWithIt) {
  std::vector<HostRank> ranks = four_gpus();
  for (int rank = 4; rank < 8; ++rank) {
    ranks.push_back(ranks[static_cast<size_t>(rank) - 4]);
    ranks.back().rank = rank;
  }
  const Result<HostChannels> host = search_host(
      with_broken_gpu(ranks), {.ranks = ranks, .inter = true, .options = {}, .graphs = {}});
  ASSERT_TRUE(host) << host.error().message();
  ASSERT_EQ(host.value().parts.size(), 2U);
  EXPECT_THAT(expand(host.value().parts[1]).ring.ranks, ::testing::Each(ElementsAre(2, 6)));
}

}  // namespace
}  // namespace plexus::testing
