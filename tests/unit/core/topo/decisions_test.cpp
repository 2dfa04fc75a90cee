// SPDX-License-Identifier: Apache-2.0
// How ranks may communicate, for each distance, option and fact, on a machine whose distances the
// test sets.
#include "core/topo/decisions.hpp"

#include <gtest/gtest.h>

#include "core/topo/local.hpp"
#include "tests/unit/core/topo/machines.hpp"

namespace plexus::testing {
namespace {

constexpr PathType kAll[] = {PathType::kLoc, PathType::kNvl, PathType::kNvb, PathType::kC2c,
                             PathType::kPix, PathType::kPxb, PathType::kP2c, PathType::kPxn,
                             PathType::kPhb, PathType::kSys, PathType::kNet, PathType::kDis};

class DecisionsTest : public ::testing::Test {
 protected:
  Path& between(int from, int to) {
    return system_.node(NodeType::kGpu, from)
        .paths.at(static_cast<size_t>(NodeType::kGpu))
        .at(static_cast<size_t>(to));
  }
  /// Of all ports, so that those of one number are alike.
  void set_net(int rank, PathType type, float gb_per_s = 1) {
    for (Path& path :
         system_.node(NodeType::kGpu, rank).paths.at(static_cast<size_t>(NodeType::kNet))) {
      path.type = type;
      path.gb_per_s = gb_per_s;
    }
  }
  GdrUse gdr(bool sending, const TopoOptions& options = {}) {
    return gdr_use(system_, options, 0, 0, sending);
  }

  System system_ = load("aws-p4d-completed", true);  // Intel, 8 A100, 4 ports
};

TEST_F(DecisionsTest, PeerAccessGoesAsFarAsItsLevel) {
  for (const PathType type : kAll) {
    between(0, 1).type = type;
    EXPECT_EQ(p2p_allowed(system_, {}, 0, 1), type <= PathType::kPxb) << name(type);
    for (const PathType level : kAll) {
      TopoOptions options;
      options.p2p_level = level;
      EXPECT_EQ(p2p_allowed(system_, options, 0, 1), type <= level) << name(type) << name(level);
    }
  }
}

TEST_F(DecisionsTest, TwoDevicesOfAMachineOfAmdReachEachOtherEverywhere) {
  system_ = load("epyc-2x4090", false);
  ASSERT_EQ(system_.count(NodeType::kDevice), 2);
  for (const PathType type : kAll) {
    between(0, 1).type = type;
    EXPECT_EQ(p2p_allowed(system_, {}, 0, 1), type <= PathType::kSys) << name(type);
  }
  between(0, 1).type = PathType::kSys;
  std::vector<int>& devices = system_.of_type.at(static_cast<size_t>(NodeType::kDevice));
  devices.push_back(devices.front());
  EXPECT_FALSE(p2p_allowed(system_, {}, 0, 1)) << "three";
  devices.pop_back();
  EXPECT_TRUE(p2p_allowed(system_, {}, 0, 1));
  CpuKind& kind = system_.node(NodeType::kCpu, 0).cpu.kind;
  kind.vendor = CpuVendor::kIntel;
  EXPECT_FALSE(p2p_allowed(system_, {}, 0, 1));
  kind = {.arch = CpuArch::kArm, .vendor = CpuVendor::kAmd, .model = kind.model};
  EXPECT_FALSE(p2p_allowed(system_, {}, 0, 1));
}

TEST_F(DecisionsTest, WhatWasFoundNotToWorkIsNotUsed) {
  between(0, 1).type = PathType::kNvl;
  between(1, 0).type = PathType::kNvl;
  TopoOptions options;
  options.reach.without_p2p = {{0, 1}};
  options.reach.without_shm = {{0, 1}};
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)}) {
    EXPECT_FALSE(p2p_allowed(system_, options, from, to));
    EXPECT_FALSE(shm_allowed(system_, options, from, to));
  }
  EXPECT_TRUE(p2p_allowed(system_, options, 0, 2));
  EXPECT_TRUE(shm_allowed(system_, options, 0, 2));
  options = {};
  options.reach.p2p = false;
  EXPECT_FALSE(p2p_allowed(system_, options, 0, 1));
  EXPECT_TRUE(shm_allowed(system_, options, 0, 1));
  options.reach.shm = false;
  EXPECT_FALSE(shm_allowed(system_, options, 0, 1));
  options = {};
  options.shm_disable = true;
  EXPECT_FALSE(shm_allowed(system_, options, 0, 1));
  EXPECT_TRUE(p2p_allowed(system_, options, 0, 1));
  system_.node(NodeType::kGpu, 1).host = 1;
  EXPECT_FALSE(shm_allowed(system_, {}, 0, 1)) << "another host";
}

TEST_F(DecisionsTest, TheNetworkIsBetterIfBothRanksHaveANearFasterPort) {
  between(0, 1).gb_per_s = 10;
  set_net(0, PathType::kPxb, 10.5F);
  set_net(1, PathType::kPix, 11);
  EXPECT_TRUE(network_is_better(system_, {}, 0, 1));
  TopoOptions options;
  options.net_disable_intra = true;
  EXPECT_FALSE(network_is_better(system_, options, 0, 1));
  set_net(1, PathType::kPix, 10);
  EXPECT_FALSE(network_is_better(system_, {}, 0, 1)) << "as fast";
  set_net(1, PathType::kP2c, 11);
  EXPECT_FALSE(network_is_better(system_, {}, 0, 1)) << "too far";
  set_net(1, PathType::kSys, 11);
  system_.node(NodeType::kGpu, 1).paths.at(static_cast<size_t>(NodeType::kNet)).back().type =
      PathType::kPix;
  EXPECT_TRUE(network_is_better(system_, {}, 0, 1)) << "one port is enough";
  set_net(0, PathType::kPix, 9);
  EXPECT_FALSE(network_is_better(system_, {}, 0, 1)) << "only one of them";
}

TEST_F(DecisionsTest, RanksAreConnectedInsideByEitherWayUnlessTheNetworkIsBetter) {
  set_net(0, PathType::kSys);
  between(0, 1).type = PathType::kSys;
  TopoOptions options;
  EXPECT_TRUE(connected_inside(system_, options, 0, 1)) << "shared memory";
  options.shm_disable = true;
  EXPECT_FALSE(connected_inside(system_, options, 0, 1));
  between(0, 1).type = PathType::kPix;
  EXPECT_TRUE(connected_inside(system_, options, 0, 1)) << "peer access";
  between(0, 1).gb_per_s = 1;
  set_net(0, PathType::kPix, 2);
  set_net(1, PathType::kPix, 2);
  EXPECT_FALSE(connected_inside(system_, options, 0, 1));
}

TEST_F(DecisionsTest, ANicReachesAGpuAsFarAsItsLevel) {
  for (const PathType type :
       {PathType::kPix, PathType::kPxb, PathType::kP2c, PathType::kPhb, PathType::kSys}) {
    set_net(0, type);
    EXPECT_EQ(gdr(false) != GdrUse::kOff, type <= PathType::kP2c) << name(type);
    TopoOptions options;
    options.net_gdr_c2c = false;
    EXPECT_EQ(gdr(false, options) != GdrUse::kOff, type <= PathType::kPxb) << name(type);
    options.net_gdr_level = PathType::kPhb;
    EXPECT_EQ(gdr(false, options) != GdrUse::kOff, type <= PathType::kPhb) << name(type);
  }
}

TEST_F(DecisionsTest, ANicReachesAGpuOnlyIfAllCan) {
  set_net(0, PathType::kPix);
  ASSERT_EQ(gdr(true), GdrUse::kOn);
  TopoOptions options;
  options.reach.gdr = false;
  EXPECT_EQ(gdr(true, options), GdrUse::kOff);
  system_.node(NodeType::kGpu, 0).rank.gdr = false;
  EXPECT_EQ(gdr(true), GdrUse::kOff);
  system_.node(NodeType::kGpu, 0).rank.gdr = true;
  system_.node(NodeType::kNet, 0).net.gdr = false;
  EXPECT_EQ(gdr(true), GdrUse::kOff);
}

TEST_F(DecisionsTest, OldGpusAreReadByANicOnlyWhereThatIsFaster) {
  set_net(0, PathType::kPix);
  RankDetail& rank = system_.node(NodeType::kGpu, 0).rank;
  TopoOptions reads;
  reads.net_gdr_read = true;
  TopoOptions never;
  never.net_gdr_read = false;
  for (const int sm : {79, 80}) {
    rank.sm = sm;
    for (Path& path : system_.node(NodeType::kGpu, 0).paths.at(size_t{0})) {
      path.type = PathType::kPix;
    }
    EXPECT_EQ(gdr(true), sm < 80 ? GdrUse::kOff : GdrUse::kOn) << sm;
    EXPECT_EQ(gdr(true, reads), GdrUse::kOn);
    EXPECT_EQ(gdr(true, never), GdrUse::kOff);
    EXPECT_EQ(gdr(false, never), GdrUse::kOn) << "it writes";
    between(0, 3).type = PathType::kNvl;
    EXPECT_EQ(gdr(true), GdrUse::kOn) << sm << " with a peer over NVLink";
  }
}

TEST_F(DecisionsTest, AnOldGpuThatIsAloneIsReadByANic) {
  set_net(0, PathType::kPix);
  system_.node(NodeType::kGpu, 0).rank.sm = 70;
  for (Path& path : system_.node(NodeType::kGpu, 0).paths.at(size_t{0})) {
    path.type = PathType::kPix;
  }
  std::vector<int>& ranks = system_.of_type.at(static_cast<size_t>(NodeType::kGpu));
  ranks.resize(2);
  EXPECT_EQ(gdr(true), GdrUse::kOff);
  ranks.resize(1);
  EXPECT_EQ(gdr(true), GdrUse::kOn);
}

TEST_F(DecisionsTest, OfPortsWithOneNumberTheFirstIsAsked) {
  set_net(0, PathType::kPix);
  system_.node(NodeType::kNet, 1).net.gdr = false;
  EXPECT_EQ(gdr_use(system_, {}, 0, 1, false), GdrUse::kOff);
  system_.node(NodeType::kNet, 1).net.first = 0;
  EXPECT_EQ(gdr_use(system_, {}, 0, 1, false), GdrUse::kOn);
}

TEST_F(DecisionsTest, OverAnotherGpuItsDistanceCounts) {
  const int relay = local_gpu_of_net(system_, {}, 0);
  const int sender = relay + 1;
  set_net(sender, PathType::kPxn);
  ASSERT_EQ(local_gpu_of_net(system_, {}, 0), relay);
  set_net(relay, PathType::kPix);
  EXPECT_EQ(gdr_use(system_, {}, sender, 0, false), GdrUse::kOn);
  set_net(relay, PathType::kPhb);
  EXPECT_EQ(gdr_use(system_, {}, sender, 0, false), GdrUse::kOff);
}

TEST_F(DecisionsTest, BesideAConnectionToTheCpuANicThatIsNearUsesPcie) {
  Node& device = system_.node(NodeType::kDevice, device_of(system_, 0));
  device.links.push_back({.type = LinkType::kC2c, .gb_per_s = 1, .to = 0});
  set_net(0, PathType::kPix);
  EXPECT_EQ(gdr(false), GdrUse::kPciMode);
  set_net(0, PathType::kP2c);
  EXPECT_EQ(gdr(false), GdrUse::kOn);
}

TEST_F(DecisionsTest, ReceiversReadOverNvlinkOfA100Only) {
  for (const PathType type : kAll) {
    between(0, 1).type = type;
    EXPECT_EQ(p2p_reads(system_, 0, 1), type == PathType::kNvl) << name(type);
  }
  between(0, 1).type = PathType::kNvl;
  for (const int ordinal : {0, 1}) {
    for (const int sm : {79, 81, 90}) {
      System other = system_;
      other.node(NodeType::kGpu, ordinal).rank.sm = sm;
      EXPECT_FALSE(p2p_reads(other, 0, 1)) << ordinal << " " << sm;
    }
  }
}

}  // namespace
}  // namespace plexus::testing
