// SPDX-License-Identifier: Apache-2.0
#include "core/transport/network/xdc_routes.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

constexpr uint32_t kParis = 1;

NetSet::Path path(uint32_t device, uint32_t peers) {
  return {.context = nullptr, .device = device, .route = std::to_string(device * 10 + peers)};
}

struct Reported {
  XdcRoutes routes{[this](uint32_t datacenter, uint32_t share) {
    EXPECT_EQ(datacenter, kParis);
    shares.push_back(share);
  }};
  std::vector<uint32_t> shares;
  const std::vector<NetSet::Path> paths = {path(0, 0), path(1, 1), path(0, 1), path(1, 0)};
  void use(int peer, size_t index) { routes.use({peer, true, 0}, kParis, paths, index); }
};

TEST(XdcRoutes, TellHowManyDevicesAreLeft) {
  Reported reported;
  reported.use(4, 0);
  EXPECT_TRUE(reported.shares.empty());
  reported.use(4, 1);
  EXPECT_EQ(reported.shares, (std::vector<uint32_t>{500}));
  reported.use(4, 0);
  EXPECT_EQ(reported.shares, (std::vector<uint32_t>{500, 1000}));
}

TEST(XdcRoutes, WaitForTheLastConnectionToReturn) {
  Reported reported;
  reported.use(4, 1);
  reported.use(5, 1);
  reported.use(4, 0);
  EXPECT_EQ(reported.shares, (std::vector<uint32_t>{500}));
  reported.use(5, 0);
  EXPECT_EQ(reported.shares, (std::vector<uint32_t>{500, 1000}));
}

/// Only the peer's device is lost: that is for the peer to tell.
TEST(XdcRoutes, CountOwnDevices) {
  XdcRoutes routes([](uint32_t /*datacenter*/, uint32_t /*share*/) { FAIL(); });
  const std::vector<NetSet::Path> paths = {path(0, 0), path(0, 1)};
  routes.use({4, true, 0}, kParis, paths, 1);
}

TEST(XdcRoutes, LetNewConnectionsBeginByAPathThatIsNotLost) {
  Reported reported;
  EXPECT_EQ(reported.routes.first_open(kParis, reported.paths), 0U);
  reported.use(4, 1);
  EXPECT_EQ(reported.routes.first_open(kParis, reported.paths), 1U);
  EXPECT_EQ(reported.routes.first_open(kParis + 1, reported.paths), 0U);
  reported.use(4, 0);
  EXPECT_EQ(reported.routes.first_open(kParis, reported.paths), 0U);
}

}  // namespace
}  // namespace plexus
