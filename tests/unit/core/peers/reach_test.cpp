// SPDX-License-Identifier: Apache-2.0
// Who reaches whom: that transports, counts and groups give one answer for every pair of ranks.
#include "core/peers/reach.hpp"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/transport/transport_table.hpp"

namespace plexus {
namespace {

using ::testing::ElementsAre;

/// On device `device` of a host whose devices 0 and 1 access each other; -1: computes on the host.
PeerInfo rank_on(int device) {
  PeerInfo info;
  info.host_hash = 1;
  info.process_id = 1;
  info.pid_namespace = 1;
  info.device = device;
  if (device >= 0) {
    info.device_uuid[0] = static_cast<uint8_t>(device + 1);
    for (uint8_t peer = 0; device < 2 && peer < 2; ++peer) {
      const uint8_t uuid[sizeof(info.device_uuid)] = {static_cast<uint8_t>(peer + 1)};
      info.reached_devices[peer] = hash_of_device(uuid);
    }
  }
  return info;
}

/// Every combination of what decides.
std::vector<PeerInfo> all_ranks() {
  std::vector<PeerInfo> all;
  for (uint32_t bits = 0; bits < 1U << 6; ++bits) {
    for (const int device : {-1, 0, 1, 2}) {
      PeerInfo info = rank_on(device);
      info.host_hash += bits & 1;
      info.process_id += bits >> 1 & 1;
      info.pid_namespace += bits >> 2 & 1;
      info.shm_disable = bits >> 3 & 1;
      info.p2p_disable = bits >> 4 & 1;
      info.ipc_disable = bits >> 5 & 1;
      all.push_back(info);
    }
  }
  return all;
}

TransportKind transport_for(PeerReach reach) {
  switch (reach) {
    case PeerReach::kProcess:
      return TransportKind::kDirect;
    case PeerReach::kDevice:
      return TransportKind::kP2p;
    case PeerReach::kSharedMemory:
      return TransportKind::kShm;
    case PeerReach::kNetwork:
      break;
  }
  return TransportKind::kNet;
}

uint64_t counted(const ReachCounts& counts, PeerReach reach) {
  switch (reach) {
    case PeerReach::kProcess:
      return counts.process;
    case PeerReach::kDevice:
      return counts.device;
    case PeerReach::kSharedMemory:
      return counts.shared_memory;
    case PeerReach::kNetwork:
      break;
  }
  return counts.network;
}

TEST(Reach, IsOneAnswerForTransportsCountsAndGroupsOfEveryPair) {
  const std::vector<PeerInfo> all = all_ranks();
  for (const PeerInfo& a : all) {
    for (const PeerInfo& b : all) {
      const PeerReach reach = reach_of(a, b);
      ASSERT_EQ(reach_of(b, a), reach);
      ASSERT_EQ(choose_transport({.mine = a, .peers = &b}), transport_for(reach));
      const std::vector<PeerInfo> pair = {a, b};
      const ReachCounts counts = count_pairs(pair);
      ASSERT_EQ(counted(counts, reach), 1U);
      ASSERT_EQ(counts.process + counts.device + counts.shared_memory + counts.network, 1U);
      ASSERT_EQ(group_ranks_by_reach(pair).size(), reach == PeerReach::kNetwork ? 2U : 1U);
    }
  }
}

TEST(Reach, CountsAndGroupsOfManyRanksAreThoseOfTheirPairs) {
  const std::vector<PeerInfo> all = all_ranks();
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    std::vector<PeerInfo> infos;
    for (int rank = 0; rank < 12; ++rank) {
      infos.push_back(all[random() % (seed % 2 == 0 ? all.size() : 16)]);
    }
    ReachCounts expected;
    for (size_t a = 0; a < infos.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        const PeerReach reach = reach_of(infos[a], infos[b]);
        expected.process += reach == PeerReach::kProcess ? 1 : 0;
        expected.device += reach == PeerReach::kDevice ? 1 : 0;
        expected.shared_memory += reach == PeerReach::kSharedMemory ? 1 : 0;
        expected.network += reach == PeerReach::kNetwork ? 1 : 0;
      }
    }
    const ReachCounts counts = count_pairs(infos);
    EXPECT_EQ(counts.process, expected.process) << "seed " << seed;
    EXPECT_EQ(counts.device, expected.device) << "seed " << seed;
    EXPECT_EQ(counts.shared_memory, expected.shared_memory) << "seed " << seed;
    EXPECT_EQ(counts.network, expected.network) << "seed " << seed;
    size_t grouped = 0;
    for (const std::vector<int>& group : group_ranks_by_reach(infos)) {
      grouped += group.size();
      for (const int a : group) {
        for (const int b : group) {
          EXPECT_TRUE(a == b || reach_of(infos[static_cast<size_t>(a)],
                                         infos[static_cast<size_t>(b)]) != PeerReach::kNetwork)
              << "seed " << seed << ", ranks " << a << " and " << b;
        }
      }
    }
    EXPECT_EQ(grouped, infos.size());
  }
}

TEST(Reach, PidNamespacesMatterToDevicesOnly) {
  PeerInfo a = rank_on(-1);
  PeerInfo b = rank_on(-1);
  b.process_id = 2;
  b.pid_namespace = 2;
  EXPECT_EQ(reach_of(a, b), PeerReach::kSharedMemory);
  a = rank_on(0);
  b = rank_on(1);
  b.process_id = 2;
  EXPECT_EQ(reach_of(a, b), PeerReach::kDevice);
  b.pid_namespace = 2;
  EXPECT_EQ(reach_of(a, b), PeerReach::kSharedMemory);
}

TEST(Reach, NeedsANetworkUnlessAllRanksReachEachOtherInMemory) {
  std::vector<PeerInfo> infos(3, rank_on(-1));
  infos[2].process_id = 2;
  EXPECT_EQ(count_pairs(infos).network, 0U);
  infos[2].host_hash = 5;
  EXPECT_EQ(count_pairs(infos).network, 2U);
  infos[2].host_hash = 1;
  infos[1].shm_disable = 1;
  EXPECT_EQ(count_pairs(infos).network, 1U) << "ranks 0 and 1 share a process";
}

TEST(Reach, GroupsAreInTheOrderOfTheirLowestRanks) {
  std::vector<PeerInfo> infos(5, rank_on(-1));
  infos[1].host_hash = 2;
  infos[3].host_hash = 2;
  EXPECT_THAT(group_ranks_by_reach(infos), ElementsAre(ElementsAre(0, 2, 4), ElementsAre(1, 3)));
  EXPECT_FALSE(are_in_one_process(infos));
  EXPECT_TRUE(are_in_one_process(std::span(infos).first(1)));
}

}  // namespace
}  // namespace plexus
