// SPDX-License-Identifier: Apache-2.0
#include "core/comm/topology.hpp"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::testing {
namespace {

using ::testing::ElementsAre;

/// `nranks` ranks dealt out to `hosts` like cards; each a process of its own.
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

/// As the leaders of all hosts would, with one description for all.
CommTopology joined(const std::vector<PeerInfo>& infos) {
  const auto parts = group_by_reach(infos);
  std::vector<PartChannels> channels;
  for (const auto& ranks : parts) {
    XmlElement machine = parse_xml(kMachine).value();
    machine = fill_template(std::move(machine), ranks, {}).value();
    channels.push_back(
        search_part(machine,
                    {.ranks = ranks, .inter = parts.size() > 1, .options = {}, .graphs = {}})
            .value());
  }
  Result<CommTopology> topology = join_parts(parts, channels);
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
  infos[3].pid_namespace = 2;  // another container
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
      EXPECT_TRUE(a == b || choose_transport(infos[a], infos[b]) == TransportKind::kNet);
    }
  }
}

TEST(CommTopology, FirstRankOfAProcessMakesItForAll) {
  TopologyCache cache;
  int made = 0;
  const auto make = [&]() -> Result<CommTopology> {
    ++made;
    return CommTopology{.parts = made, .orders = {{.ring = {0}, .nodes = {0}}}};
  };
  const auto first = cache.find_or_make(5, make);
  const auto second = cache.find_or_make(5, make);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first.value(), second.value());
  const auto other = cache.find_or_make(6, make);
  ASSERT_TRUE(other);
  EXPECT_EQ(other.value()->parts, 2);
  EXPECT_EQ(made, 2);
}

TEST(CommTopology, FailureIsNotKept) {
  TopologyCache cache;
  const auto failed = cache.find_or_make(
      5, []() -> Result<CommTopology> { return fail(Code::kInvalidUsage, "no"); });
  EXPECT_FALSE(failed);
  EXPECT_TRUE(cache.find_or_make(5, []() -> Result<CommTopology> { return CommTopology{}; }));
}

}  // namespace
}  // namespace plexus::testing
