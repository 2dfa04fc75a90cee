// SPDX-License-Identifier: Apache-2.0
#include "core/setup/tuner_facts.hpp"

#include <initializer_list>
#include <vector>

#include <gtest/gtest.h>

namespace plexus {
namespace {

/// Ranks with these values of NCCL_NCHANNELS_PER_NET_PEER.
std::vector<PeerInfo> ranks_with(std::initializer_list<uint32_t> told) {
  std::vector<PeerInfo> infos;
  for (const uint32_t value : told) {
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

}  // namespace
}  // namespace plexus
