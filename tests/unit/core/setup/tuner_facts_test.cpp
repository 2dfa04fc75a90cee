// SPDX-License-Identifier: Apache-2.0
#include "core/setup/tuner_facts.hpp"

#include <initializer_list>
#include <vector>

#include <gtest/gtest.h>

namespace plexus {
namespace {

/// Ranks with these values of NCCL_NCHANNELS_PER_NET_PEER.
std::vector<PeerInfo> ranks_with(std::initializer_list<uint32_t> values) {
  std::vector<PeerInfo> infos;
  for (const uint32_t value : values) {
    PeerInfo& info = infos.emplace_back();
    info.net_channels = value;
    info.min_channels = 1;
    info.max_channels = 64;
  }
  return infos;
}

TEST(NetChannels, AreTheSmallestNumberThatARankWasGiven) {
  EXPECT_EQ(choose_net_channels(ranks_with({4, 4, 4})), 4U);
  EXPECT_EQ(choose_net_channels(ranks_with({4, 2, 3})), 2U);
  EXPECT_EQ(choose_net_channels(ranks_with({0, 5, 0})), 5U) << "0: no wish";
}

TEST(NetChannels, AreAtMostAsManyAsACallMayHave) {
  std::vector<PeerInfo> infos = ranks_with({8, 8});
  infos[1].max_channels = 3;  // NCCL_MAX_CTAS
  EXPECT_EQ(choose_net_channels(infos), 3U);
}

TEST(NetChannels, AreOneWhenNoRankWasGivenANumber) {
  EXPECT_EQ(choose_net_channels(ranks_with({0, 0})), 1U);
}

/// Processes of one host, each in a pid namespace of its own, as containers are.
std::vector<PeerInfo> containers(size_t nranks) {
  std::vector<PeerInfo> infos(nranks);
  for (size_t rank = 0; rank < nranks; ++rank) {
    infos[rank].host_hash = 1;
    infos[rank].process_id = 1 + rank;
    infos[rank].pid_namespace = 100 + rank;
  }
  return infos;
}

plexus_tuner_comm_t described(const std::vector<PeerInfo>& infos) {
  CommTopology topology;
  return describe_to_tuner(infos, topology, 1, 4096);
}

TEST(TunerLinks, AreOfTheHostBetweenPidNamespacesThatMapEachOthersMemory) {
  const plexus_tuner_comm_t comm = described(containers(4));
  EXPECT_EQ(comm.links[PLEXUS_LINK_HOST].count, 6U);
  EXPECT_EQ(comm.links[PLEXUS_LINK_NET].count, 0U);
}

TEST(TunerLinks, AreOfTheNetworkForTheRanksThatInitFoundIsolatedOnly) {
  std::vector<PeerInfo> infos = containers(4);
  infos[3].shm_disable = 1;  // as core/setup/same_host sets it
  const plexus_tuner_comm_t comm = described(infos);
  EXPECT_EQ(comm.links[PLEXUS_LINK_HOST].count, 3U);
  EXPECT_EQ(comm.links[PLEXUS_LINK_NET].count, 3U);
}

TEST(TunerLinks, AreOfTheHostInAProcessForARankThatMayNotUseAddresses) {
  std::vector<PeerInfo> infos = containers(3);
  for (PeerInfo& info : infos) {
    info.process_id = 1;
  }
  infos[0].p2p_disable = 1;
  const plexus_tuner_comm_t comm = described(infos);
  EXPECT_EQ(comm.links[PLEXUS_LINK_PROCESS].count, 1U);
  EXPECT_EQ(comm.links[PLEXUS_LINK_HOST].count, 2U);
}

TEST(SlotBytes, AreThoseOfMemoryUnlessAPairOfRanksNeedsANetwork) {
  std::vector<PeerInfo> infos = containers(2);
  EXPECT_EQ(choose_slot_bytes(infos), kSlotBytesOfMemory);
  infos[0].shm_disable = 1;
  EXPECT_EQ(choose_slot_bytes(infos), kSlotBytesOfNetwork);
}

}  // namespace
}  // namespace plexus
