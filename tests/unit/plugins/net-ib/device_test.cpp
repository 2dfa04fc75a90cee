// SPDX-License-Identifier: Apache-2.0
// Devices without cards: speeds, fabrics, and a host that has no card at all.
#include "plugins/net-ib/device.hpp"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::net_ib {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string>& lines_of(plexus_log_sink_t* sink) {
  return *reinterpret_cast<std::vector<std::string>*>(sink);
}
void keep_line(plexus_log_sink_t* sink, int32_t, const char*, int32_t, const char* text) {
  lines_of(sink).emplace_back(text);
}

TEST(Devices, HostWithoutCardsHasNoneAndSaysSoInOneLine) {
  if (std::filesystem::exists("/sys/class/infiniband")) {
    GTEST_SKIP() << "this host has RDMA devices";
  }
  std::vector<std::string> lines;
  const plugin::Log log(&keep_line, reinterpret_cast<plexus_log_sink_t*>(&lines));
  const auto devices = Devices::open({}, log);
  ASSERT_TRUE(devices.has_value());
  EXPECT_TRUE(devices.value()->list().empty());
  EXPECT_THAT(lines, ElementsAre(HasSubstr("no InfiniBand or RoCE device")));
}

TEST(Devices, DisabledMeansNone) {
  std::vector<std::string> lines;
  const plugin::Log log(&keep_line, reinterpret_cast<plexus_log_sink_t*>(&lines));
  Settings settings;
  settings.is_disabled = true;
  EXPECT_TRUE(Devices::open(settings, log).value()->list().empty());
  EXPECT_THAT(lines, ElementsAre(HasSubstr("NCCL_IB_DISABLE")));
}

TEST(Devices, SpeedIsThatOfAllLanes) {
  EXPECT_EQ(speed_of(64, 2), 200000U);   // HDR, 4 lanes
  EXPECT_EQ(speed_of(128, 2), 400000U);  // NDR, 4 lanes
  EXPECT_EQ(speed_of(8, 1), 10000U);     // Soft-RoCE
  EXPECT_EQ(speed_of(3, 1), PLEXUS_UNKNOWN_U32);
}

int32_t level(const FabricSettings& settings, uint64_t a, uint64_t b) {
  plexus_net_path_t path{};
  read_path(settings, a, b, path);
  return path.level;
}

TEST(FabricPath, IdIsDatacenterTimesRailsPlusRail) {
  FabricSettings settings;
  settings.rails_max = 8;
  EXPECT_EQ(level(settings, 0, 0), PLEXUS_NET_LEVEL_SAME_DC);
  EXPECT_EQ(level(settings, 0, 8), PLEXUS_NET_LEVEL_OTHER_DC);  // rail 0 of datacenters 0 and 1
  EXPECT_EQ(level(settings, 0, 9), PLEXUS_NET_LEVEL_DISCONNECTED);
  EXPECT_EQ(level(settings, 1, 17), PLEXUS_NET_LEVEL_OTHER_DC);
}

TEST(FabricPath, DefaultIdsConnectTheirOwnKindOnly) {
  const FabricSettings settings;
  EXPECT_EQ(level(settings, settings.roce_default, settings.roce_default),
            PLEXUS_NET_LEVEL_SAME_DC);
  EXPECT_EQ(level(settings, settings.ib_default, settings.roce_default),
            PLEXUS_NET_LEVEL_DISCONNECTED);
  EXPECT_EQ(level(settings, settings.roce_default, 3), PLEXUS_NET_LEVEL_DISCONNECTED);
  EXPECT_EQ(level(settings, PLEXUS_UNKNOWN_U64, 3), PLEXUS_NET_LEVEL_UNKNOWN);
}

}  // namespace
}  // namespace plexus::net_ib
