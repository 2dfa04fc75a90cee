// SPDX-License-Identifier: Apache-2.0
#include "core/setup/topology.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/topo/broken_gpu.hpp"

namespace plexus::testing {
namespace {

using ::testing::ElementsAre;

/// `nranks` ranks assigned to `hosts` round-robin, each in its own process.
std::vector<PeerInfo> interleaved(int nranks, int hosts, int numas = 1) {
  std::vector<PeerInfo> infos(static_cast<size_t>(nranks));
  for (int rank = 0; rank < nranks; ++rank) {
    PeerInfo& info = infos[static_cast<size_t>(rank)];
    info.process_id = static_cast<uint64_t>(rank) + 1;
    info.host_hash = static_cast<uint64_t>(rank % hosts) + 100;
    info.pid_namespace = 1;
    info.numa = rank / hosts % numas;
  }
  return infos;
}

constexpr const char* kMachine = R"(<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49"/>
  <cpu numaid="1" affinity="ff00" arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49"/>
</system>)";

/// The result of the leaders of all hosts, with one machine description for all.
CommTopology joined(const std::vector<PeerInfo>& infos,
                    std::vector<DatacenterNode> sites = {},
                    const std::string& text = kMachine,
                    const std::vector<NetPort>& nets = {}) {
  const HostGroups groups = group_by_reach(infos);
  std::vector<std::vector<PartChannels>> channels;
  for (const auto& ranks : groups) {
    XmlElement machine = parse_xml(text).value();
    machine = fill_template(std::move(machine), ranks, nets).value();
    channels.push_back(
        search_host(machine,
                    {.ranks = ranks, .inter = groups.size() > 1, .options = {}, .graphs = {}})
            .value()
            .parts);
  }
  sites.resize(groups.size());
  Result<CommTopology> topology = join_parts(channels, sites);
  EXPECT_TRUE(topology) << topology.error().message();
  return std::move(topology).value();
}

TEST(CommTopology, RingCrossesHostsOncePerHost) {
  for (const int hosts : {1, 2, 3, 5, 8}) {
    for (const int nranks : {hosts, 2 * hosts, 3 * hosts + 1, 40}) {
      const std::vector<PeerInfo> infos = interleaved(nranks, hosts, 2);
      const CommTopology topology = joined(infos);
      EXPECT_EQ(topology.parts, hosts);
      for (const ChannelOrder& order : topology.orders) {
        std::vector<int> sorted = order.ring;
        std::sort(sorted.begin(), sorted.end());
        std::vector<int> all(static_cast<size_t>(nranks));
        std::iota(all.begin(), all.end(), 0);
        ASSERT_EQ(sorted, all);
        int crossings = 0;
        for (size_t i = 0; i < order.ring.size(); ++i) {
          const auto host = [&](size_t place) {
            return infos[static_cast<size_t>(order.ring[place % order.ring.size()])].host_hash;
          };
          crossings += host(i) != host(i + 1) ? 1 : 0;
        }
        EXPECT_EQ(crossings, hosts > 1 ? hosts : 0);
        EXPECT_EQ(order.nodes.size(), static_cast<size_t>(hosts));
        EXPECT_EQ(order.nodes.front(), 0);
      }
    }
  }
}

TEST(CommTopology, RanksOfOneHostAndNumaNodeKeepTheirOrder) {
  const CommTopology topology = joined(interleaved(6, 1));
  ASSERT_EQ(topology.orders.size(), 1U) << "equal orders are kept once";
  EXPECT_THAT(topology.orders[0].ring, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(CommTopology, RanksOfOneNumaNodeAreNeighbours) {
  const std::vector<PeerInfo> infos = interleaved(8, 1, 2);
  for (const ChannelOrder& order : joined(infos).orders) {
    int changes = 0;
    for (size_t i = 0; i < 8; ++i) {
      changes += order.ring[i] % 2 != order.ring[(i + 1) % 8] % 2 ? 1 : 0;
    }
    EXPECT_EQ(changes, 2);
  }
}

TEST(CommTopology, PartIsWhatReachesEachOtherWithoutANetwork) {
  std::vector<PeerInfo> infos = interleaved(4, 1);
  EXPECT_EQ(group_by_reach(infos).size(), 1U);
  infos[3].pid_namespace = 2;  // another container, which is asked for its memory
  EXPECT_EQ(group_by_reach(infos).size(), 1U);
  infos[3].shm_disable = 1;
  EXPECT_EQ(group_by_reach(infos).size(), 2U);
  for (PeerInfo& info : infos) {
    info.shm_disable = 1;
    info.process_id = 7;
  }
  EXPECT_EQ(group_by_reach(infos).size(), 1U) << "one process";
  for (PeerInfo& info : infos) {
    info.p2p_disable = 1;
  }
  EXPECT_EQ(group_by_reach(infos).size(), 4U);
  for (size_t a = 0; a < infos.size(); ++a) {
    for (size_t b = 0; b < infos.size(); ++b) {
      EXPECT_TRUE(a == b ||
                  choose_transport({.mine = infos[a], .peers = &infos[b]}) == TransportKind::kNet);
    }
  }
}

/// Number 2 of the four GPUs of each of two hosts has lost its NVLinks.
TEST(CommTopology, GpuWithoutNvlinksIsANodeOfItsOwn) {
  std::vector<PeerInfo> infos = interleaved(8, 2);
  for (size_t rank = 0; rank < infos.size(); ++rank) {
    PeerInfo& info = infos[rank];
    info.device = static_cast<int32_t>(rank / 2);
    info.device_sm = 80;
    info.numa = info.device / 2;
    fmt::format_to_n(info.bus_id, sizeof(info.bus_id), "0000:1{}:00.0", info.device);
  }
  std::vector<NetPort> nets(2);
  nets[0] = {.name = "mlx5_0", .pci_path = "", .speed_mbit_per_s = 200'000, .gdr = true};
  nets[1] = {.name = "mlx5_1", .pci_path = "", .speed_mbit_per_s = 200'000, .gdr = true};
  const CommTopology topology = joined(infos, {}, machine_with_broken_gpu(2), nets);
  EXPECT_EQ(topology.parts, 4);
  for (const ChannelOrder& order : topology.orders) {
    ASSERT_EQ(order.ring.size(), 8U);
    ASSERT_EQ(order.nodes.size(), 4U);
    for (size_t node = 0; node < 4; ++node) {
      const auto first = static_cast<size_t>(order.nodes[node]);
      const auto end = node == 3 ? 8U : static_cast<size_t>(order.nodes[node + 1]);
      EXPECT_EQ(end - first, order.ring[first] / 2 == 2 ? 1U : 3U);
    }
  }
}

TEST(CommTopology, FirstRankOfAProcessMakesItForAll) {
  TopologyCache cache;
  int made = 0;
  const auto make = [&]() -> Result<CommTopology> {
    ++made;
    return CommTopology{.parts = made,
                        .orders = {{.ring = {0}, .nodes = {0}, .datacenters = {}}},
                        .datacenters = {},
                        .datacenter_of = {},
                        .costs = {}};
  };
  const auto first = cache.of_groups.find_or_make(5, make);
  const auto second = cache.of_groups.find_or_make(5, make);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first.value(), second.value());
  const auto other = cache.of_groups.find_or_make(6, make);
  ASSERT_TRUE(other);
  EXPECT_EQ(other.value()->parts, 2);
  EXPECT_EQ(made, 2);
}

TEST(CommTopology, FailureIsNotKept) {
  TopologyCache cache;
  const auto failed = cache.of_groups.find_or_make(
      5, []() -> Result<CommTopology> { return fail(Code::kInvalidUsage, "no"); });
  EXPECT_FALSE(failed);
  EXPECT_TRUE(
      cache.of_groups.find_or_make(5, []() -> Result<CommTopology> { return CommTopology{}; }));
}

/// Locations of nodes whose datacenter is `datacenter_of_node`, joined as `links` says.
std::vector<DatacenterNode> locations(const std::vector<int>& datacenter_of_node,
                                      bool scatter,
                                      const std::vector<std::pair<int, int>>& links = {}) {
  const int datacenters =
      *std::max_element(datacenter_of_node.begin(), datacenter_of_node.end()) + 1;
  std::vector<DatacenterNode> sites;
  for (const int datacenter : datacenter_of_node) {
    DatacenterNode node{.host = std::to_string(sites.size()), .location = {}, .answers = {}};
    node.location.datacenter = "dc" + std::to_string(datacenter);
    node.location.scatter = scatter;
    for (int other = 0; other < datacenters; ++other) {
      const bool joined_by_link =
          links.empty() ||
          std::count(links.begin(), links.end(),
                     std::pair(std::min(datacenter, other), std::max(datacenter, other)));
      if (other != datacenter && joined_by_link) {
        DatacenterPath path;
        path.connected = true;
        node.location.links.push_back({.to = "dc" + std::to_string(other), .path = path});
      }
    }
    sites.push_back(std::move(node));
  }
  return sites;
}

/// Nodes of datacenters of these sizes: consecutive or round-robin.
std::vector<int> place(const std::vector<int>& sizes, bool interleaved_placement) {
  std::vector<int> placed;
  std::vector<int> left = sizes;
  const int nodes = std::accumulate(sizes.begin(), sizes.end(), 0);
  for (size_t datacenter = 0; static_cast<int>(placed.size()) < nodes;) {
    if (left[datacenter] > 0) {
      --left[datacenter];
      placed.push_back(static_cast<int>(datacenter));
      datacenter = interleaved_placement ? (datacenter + 1) % sizes.size() : datacenter;
    } else {
      datacenter = (datacenter + 1) % sizes.size();
    }
  }
  return placed;
}

int count_crossings(const ChannelOrder& order) {
  int crossings = 0;
  for (size_t at = 0; at < order.datacenters.size(); ++at) {
    crossings +=
        order.datacenters[at] != order.datacenters[(at + 1) % order.datacenters.size()] ? 1 : 0;
  }
  return crossings;
}

/// Hosts at which a ring leaves their datacenter.
std::set<uint64_t> border_hosts(const CommTopology& topology, const std::vector<PeerInfo>& infos) {
  std::set<uint64_t> hosts;
  for (const ChannelOrder& order : topology.orders) {
    for (size_t at = 0; at < order.ring.size(); ++at) {
      if (order.datacenters[at] != order.datacenters[(at + 1) % order.ring.size()]) {
        hosts.insert(infos[static_cast<size_t>(order.ring[at])].host_hash);
      }
    }
  }
  return hosts;
}

const std::vector<std::vector<int>> kDatacenterSizes = {{4, 4},    {8, 8},       {3, 5}, {1, 7},
                                                        {2, 3, 4}, {5, 5, 5, 5}, {7, 7}};

TEST(CommTopologyDatacenters, RingsCrossOncePerDatacenterAndAtEveryHost) {
  constexpr int kRanksPerNode = 2;
  for (const std::vector<int>& sizes : kDatacenterSizes) {
    for (const bool dealt_out : {false, true}) {
      for (const bool scatter : {false, true}) {
        const std::vector<int> placed = place(sizes, dealt_out);
        const int nodes = static_cast<int>(placed.size());
        const std::vector<PeerInfo> infos = interleaved(kRanksPerNode * nodes, nodes);
        const CommTopology topology = joined(infos, locations(placed, scatter));
        EXPECT_EQ(topology.datacenters.count(), sizes.size());
        for (const ChannelOrder& order : topology.orders) {
          EXPECT_EQ(count_crossings(order), static_cast<int>(sizes.size()));
          EXPECT_EQ(order.nodes.size(), placed.size());
          std::vector<int> sorted = order.ring;
          std::sort(sorted.begin(), sorted.end());
          EXPECT_EQ(std::unique(sorted.begin(), sorted.end()) - sorted.begin(),
                    kRanksPerNode * nodes);
        }
        EXPECT_EQ(border_hosts(topology, infos).size(), scatter ? placed.size() : sizes.size());
      }
    }
  }
}

TEST(CommTopologyDatacenters, RingsCrossALineOfDatacentersThereAndBack) {
  for (const int size : {1, 2, 5}) {
    for (const int datacenters : {3, 4, 6}) {
      std::vector<std::pair<int, int>> line;
      for (int datacenter = 1; datacenter < datacenters; ++datacenter) {
        line.emplace_back(datacenter - 1, datacenter);
      }
      const std::vector<int> placed =
          place(std::vector<int>(static_cast<size_t>(datacenters), size), true);
      const int nodes = static_cast<int>(placed.size());
      const CommTopology topology =
          joined(interleaved(3 * nodes, nodes), locations(placed, true, line));
      for (const ChannelOrder& order : topology.orders) {
        EXPECT_EQ(count_crossings(order), 2 * (datacenters - 1));
        for (size_t at = 0; at < order.datacenters.size(); ++at) {
          const auto from = static_cast<size_t>(order.datacenters[at]);
          const auto to =
              static_cast<size_t>(order.datacenters[(at + 1) % order.datacenters.size()]);
          EXPECT_TRUE(topology.datacenters.path(from, to).connected);
        }
      }
    }
  }
}

TEST(CommTopologyDatacenters, TreesCrossByLinksThatExist) {
  const std::vector<std::pair<int, int>> star = {{0, 1}, {0, 2}, {0, 3}, {0, 4}};
  const std::vector<int> placed = place({4, 1, 2, 1, 2}, true);
  const auto nodes = static_cast<int>(placed.size());
  const CommTopology topology = joined(interleaved(nodes, nodes), locations(placed, true, star));
  for (const ChannelOrder& order : topology.orders) {
    ASSERT_EQ(order.above.size(), 5U);
    EXPECT_EQ(std::count(order.above.begin(), order.above.end(), -1), 1);
    for (size_t at = 0; at < order.above.size(); ++at) {
      EXPECT_TRUE(order.above[at] < 0 ||
                  topology.datacenters.path(at, static_cast<size_t>(order.above[at])).connected);
    }
  }
}

TEST(CommTopologyDatacenters, DatacenterOfOneRankInTheMiddleOfALineIsAnError) {
  std::vector<std::vector<PartChannels>> channels;
  for (const auto& ranks : group_by_reach(interleaved(3, 3))) {
    const XmlElement machine = fill_template(parse_xml(kMachine).value(), ranks, {}).value();
    channels.push_back(
        search_host(machine, {.ranks = ranks, .inter = true, .options = {}, .graphs = {}})
            .value()
            .parts);
  }
  const auto topology = join_parts(channels, locations({0, 1, 2}, true, {{0, 1}, {1, 2}}));
  ASSERT_FALSE(topology);
  EXPECT_THAT(topology.error().message(), ::testing::HasSubstr("2 times, but it has 1 rank:"));
}

}  // namespace
}  // namespace plexus::testing
