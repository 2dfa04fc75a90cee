// SPDX-License-Identifier: Apache-2.0
#include "core/transport/peer_info.hpp"

#include <cstring>

#include <gtest/gtest.h>

namespace plexus {
namespace {

PeerInfo host_rank(uint64_t process) {
  PeerInfo info;
  info.process_id = process;
  info.host_hash = 1;
  info.pid_namespace = 1;
  return info;
}

/// A rank on `device` of a host, which has access to the devices below `reached`.
PeerInfo cuda_rank(uint64_t process, int device, int reached) {
  PeerInfo info = host_rank(process);
  info.device = device;
  info.device_uuid[0] = static_cast<uint8_t>(device + 1);
  for (int peer = 0; peer < reached; ++peer) {
    uint8_t uuid[sizeof(info.device_uuid)] = {};
    uuid[0] = static_cast<uint8_t>(peer + 1);
    info.reached_devices[peer] = hash_of_device(uuid);
  }
  return info;
}

TEST(ChooseTransport, CudaRanksOfTwoProcessesMeetOnTheDeviceWhenBothReachTheOthers) {
  EXPECT_EQ(choose_transport(cuda_rank(1, 0, 2), cuda_rank(2, 1, 2)), TransportKind::kP2p);
  EXPECT_EQ(choose_transport(cuda_rank(1, 0, 1), cuda_rank(2, 0, 1)), TransportKind::kP2p);
  EXPECT_EQ(choose_transport(cuda_rank(1, 0, 1), cuda_rank(2, 1, 2)), TransportKind::kShm);
}

TEST(ChooseTransport, CudaRanksMeetInSharedMemoryWhenP2pIsOff) {
  PeerInfo without = cuda_rank(1, 0, 2);
  without.p2p_disable = 1;
  EXPECT_EQ(choose_transport(without, cuda_rank(2, 1, 2)), TransportKind::kShm);
  EXPECT_EQ(choose_transport(without, cuda_rank(1, 1, 2)), TransportKind::kShm);
  EXPECT_FALSE(reach_each_other(without, cuda_rank(1, 1, 2)));
}

TEST(ChooseTransport, MixedRanksMeetInHostMemory) {
  EXPECT_EQ(choose_transport(cuda_rank(1, 0, 2), host_rank(2)), TransportKind::kShm);
  EXPECT_EQ(choose_transport(cuda_rank(1, 0, 2), host_rank(1)), TransportKind::kDirect);
  EXPECT_FALSE(reach_each_other(cuda_rank(1, 0, 2), host_rank(1)));
}

TEST(ChooseTransport, DevicesOfTwoHostsMeetOverTheNetwork) {
  PeerInfo far = cuda_rank(2, 0, 2);
  far.host_hash = 2;
  EXPECT_EQ(choose_transport(cuda_rank(1, 0, 2), far), TransportKind::kNet);
  EXPECT_FALSE(same_device(cuda_rank(1, 0, 2), far));
  EXPECT_TRUE(same_device(cuda_rank(1, 0, 2), cuda_rank(2, 0, 1)));
}

TEST(PeerInfo, SurvivesTheWire) {
  PeerInfo info = cuda_rank(3, 1, 2);
  std::memcpy(info.bus_id, "0000:3b:00.0", 13);
  const auto back = PeerInfo::from_bytes(info.to_bytes());
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back.value().device, 1);
  EXPECT_STREQ(back.value().bus_id, "0000:3b:00.0");
  EXPECT_TRUE(PeerInfo::from_bytes("short").has_error());
}

}  // namespace
}  // namespace plexus
