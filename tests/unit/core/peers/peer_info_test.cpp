// SPDX-License-Identifier: Apache-2.0
#include "core/peers/peer_info.hpp"

#include <cstring>

#include <gtest/gtest.h>

namespace plexus {
namespace {

TEST(PeerInfo, SurvivesTheWire) {
  PeerInfo info;
  info.device = 1;
  std::memcpy(info.bus_id, "0000:3b:00.0", 13);
  const auto back = PeerInfo::from_bytes(info.own_bytes(), info.common_bytes());
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back.value().device, 1);
  EXPECT_STREQ(back.value().bus_id, "0000:3b:00.0");
  EXPECT_TRUE(PeerInfo::from_bytes("short", info.common_bytes()).has_error());
  EXPECT_TRUE(PeerInfo::from_bytes(info.own_bytes() + "x", info.common_bytes()).has_error());
  EXPECT_TRUE(PeerInfo::from_bytes(info.own_bytes(), "short").has_error());
}

TEST(PeerInfo, WhatRanksHaveInCommonIsEqual) {
  PeerInfo one;
  PeerInfo other;
  other.process_id = 7;
  other.pid = 8;
  other.core_set = 9;
  std::memcpy(other.host, "node2", 6);
  EXPECT_EQ(one.common_bytes(), other.common_bytes());
  EXPECT_LE(one.own_bytes().size(), 56U);
  other.slot_bytes = 1;
  EXPECT_NE(one.common_bytes(), other.common_bytes());
}

TEST(PeerInfo, NamesARankForMessages) {
  PeerInfo info;
  std::memcpy(info.host, "node2", 6);
  info.pid = 17;
  EXPECT_EQ(describe_rank(4, info), "rank 4 (node2:17)");
}

}  // namespace
}  // namespace plexus
