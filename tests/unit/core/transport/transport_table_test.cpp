// SPDX-License-Identifier: Apache-2.0
// Which transport connects which ranks.
#include "core/transport/transport_table.hpp"

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

/// On device `device` of a host whose devices below `reached` it accesses.
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

TransportKind chosen(const PeerInfo& a, const PeerInfo& b) {
  const TransportKind kind = choose_transport({.mine = a, .peers = &b});
  EXPECT_EQ(choose_transport({.mine = b, .peers = &a}), kind);
  return kind;
}

TEST(ChooseTransport, CudaRanksOfTwoProcessesMeetOnTheDeviceWhenBothReachTheOthers) {
  EXPECT_EQ(chosen(cuda_rank(1, 0, 2), cuda_rank(2, 1, 2)), TransportKind::kP2p);
  EXPECT_EQ(chosen(cuda_rank(1, 0, 1), cuda_rank(2, 0, 1)), TransportKind::kP2p);
  EXPECT_EQ(chosen(cuda_rank(1, 0, 1), cuda_rank(2, 1, 2)), TransportKind::kShm);
}

TEST(ChooseTransport, CudaRanksMeetInSharedMemoryWhenP2pIsOff) {
  PeerInfo without = cuda_rank(1, 0, 2);
  without.p2p_disable = 1;
  EXPECT_EQ(chosen(without, cuda_rank(2, 1, 2)), TransportKind::kShm);
  EXPECT_EQ(chosen(without, cuda_rank(1, 1, 2)), TransportKind::kShm);
  EXPECT_FALSE(reach_each_other(without, cuda_rank(1, 1, 2)));
}

TEST(ChooseTransport, MixedRanksMeetInHostMemory) {
  EXPECT_EQ(chosen(cuda_rank(1, 0, 2), host_rank(2)), TransportKind::kShm);
  EXPECT_EQ(chosen(cuda_rank(1, 0, 2), host_rank(1)), TransportKind::kDirect);
  EXPECT_FALSE(reach_each_other(cuda_rank(1, 0, 2), host_rank(1)));
}

TEST(ChooseTransport, DevicesOfTwoHostsMeetOverTheNetwork) {
  PeerInfo far = cuda_rank(2, 0, 2);
  far.host_hash = 2;
  EXPECT_EQ(chosen(cuda_rank(1, 0, 2), far), TransportKind::kNet);
  EXPECT_FALSE(same_device(cuda_rank(1, 0, 2), far));
  EXPECT_TRUE(same_device(cuda_rank(1, 0, 2), cuda_rank(2, 0, 1)));
}

TEST(ChooseTransport, RanksOfTwoDatacentersMeetByTheCrossDcTransportUnlessTheyShareMemory) {
  PeerInfo far = host_rank(2);
  far.host_hash = 2;
  const PeerInfo here = host_rank(1);
  EXPECT_EQ(choose_transport({.mine = here, .peers = &far, .crosses_datacenters = true}),
            TransportKind::kXdc);
  const PeerInfo beside = host_rank(2);
  EXPECT_EQ(choose_transport({.mine = here, .peers = &beside, .crosses_datacenters = true}),
            TransportKind::kShm);
}

TEST(ChooseTransport, ANetworkThatReducesIsNoRank) {
  const PeerInfo here = host_rank(1);
  EXPECT_EQ(choose_transport({.mine = here, .peers = nullptr}), TransportKind::kCollnet);
}

TEST(TransportTable, EveryTransportHasARowOfItsOwn) {
  EXPECT_STREQ(name(TransportKind::kDirect), "direct");
  EXPECT_STREQ(name(TransportKind::kP2p), "p2p");
  EXPECT_STREQ(name(TransportKind::kShm), "shm");
  EXPECT_STREQ(name(TransportKind::kXdc), "xdc");
  EXPECT_STREQ(name(TransportKind::kNet), "net");
  EXPECT_STREQ(name(TransportKind::kCollnet), "collnet");
}

}  // namespace
}  // namespace plexus
