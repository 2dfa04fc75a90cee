// SPDX-License-Identifier: Apache-2.0
#include "core/transport/peer_info.hpp"

#include <cstring>

#include <gtest/gtest.h>

namespace plexus {
namespace {

TEST(PeerInfo, SurvivesTheWire) {
  PeerInfo info;
  info.device = 1;
  std::memcpy(info.bus_id, "0000:3b:00.0", 13);
  const auto back = PeerInfo::from_bytes(info.to_bytes());
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back.value().device, 1);
  EXPECT_STREQ(back.value().bus_id, "0000:3b:00.0");
  EXPECT_TRUE(PeerInfo::from_bytes("short").has_error());
}

TEST(PeerInfo, NamesARankForMessages) {
  PeerInfo info;
  std::memcpy(info.host, "node2", 6);
  info.pid = 17;
  EXPECT_EQ(describe_rank(4, info), "rank 4 (node2:17)");
}

}  // namespace
}  // namespace plexus
