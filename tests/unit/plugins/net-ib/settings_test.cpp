// SPDX-License-Identifier: Apache-2.0
// The settings of net-ib: defaults, bounds, and sentences that name what is wrong.
#include "plugins/net-ib/settings.hpp"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::net_ib {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Texts = std::map<std::string, std::string>;

Result<Settings> read(const Texts& texts, int32_t traffic_class = -1) {
  return read_settings(
      [&](const char* name) {
        const auto found = texts.find(name);
        return found == texts.end() ? nullptr : found->second.c_str();
      },
      traffic_class);
}

TEST(IbSettings, DefaultsAreNcclsOnesButForInline) {
  const Settings settings = read({}).value();
  EXPECT_FALSE(settings.is_disabled);
  EXPECT_EQ(settings.timeout, 20);
  EXPECT_EQ(settings.retries, 7);
  EXPECT_EQ(settings.qps, 1U);
  EXPECT_FALSE(settings.splits_on_qps);
  EXPECT_EQ(settings.gid.index, -1);
  EXPECT_EQ(settings.adaptive_routing, Choice::kAuto);
  EXPECT_EQ(settings.adaptive_routing_bytes, 8192U);
  EXPECT_EQ(settings.service_level, 0);
  EXPECT_EQ(settings.traffic_class, 0);
  EXPECT_TRUE(settings.uses_ece);
  EXPECT_EQ(settings.fabric.rails_max, uint64_t{1} << 62);
  EXPECT_TRUE(settings.sends_inline);
  EXPECT_FALSE(read({{"NCCL_IB_USE_INLINE", "0"}}).value().sends_inline);
}

TEST(IbSettings, TrafficClassIsTheUsersThenTheHosts) {
  EXPECT_EQ(read({}, 7).value().traffic_class, 7);
  EXPECT_EQ(read({}, 7).value().control_traffic_class, 7);
  const Settings settings = read({{"NCCL_IB_TC", "106"}, {"NCCL_IB_FIFO_TC", "84"}}, 7).value();
  EXPECT_EQ(settings.traffic_class, 106);
  EXPECT_EQ(settings.control_traffic_class, 84);
  EXPECT_TRUE(read({}, 256).has_error());
}

TEST(IbSettings, MistakesAreNamed) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"NCCL_IB_TIMEOUT", "32s"},       {"NCCL_IB_GID_INDEX", "first"},
      {"NCCL_NET_MERGE_LEVEL", "NEAR"}, {"NCCL_NET_MERGE_POLICY", "rail"},
      {"NCCL_IB_ADDR_FAMILY", "IPv4"},  {"NCCL_IB_ADDR_RANGE", "10"},
      {"PLEXUS_IB_HCA", "x"},           {"NCCL_IB_HCA", "a:b"}};
  for (const auto& [name, value] : mistakes) {
    const auto settings = read({{name, value}});
    ASSERT_TRUE(settings.has_error()) << name;
    EXPECT_EQ(settings.error().code, PLEXUS_INVALID_USAGE);
    EXPECT_THAT(settings.error().text, HasSubstr(name));
  }
}

TEST(IbSettings, NumbersBeyondTheirBoundsAreLimitedAndToldOf) {
  const Settings settings =
      read(
          {{"NCCL_IB_TIMEOUT", "32"}, {"NCCL_IB_TC", "256"}, {"NCCL_IB_QPS_PER_CONNECTION", "128"}})
          .value();
  EXPECT_EQ(settings.timeout, 31);
  EXPECT_EQ(settings.traffic_class, 255);
  EXPECT_EQ(settings.qps, 16U);
  EXPECT_EQ(settings.limited.size(), 3U);
  EXPECT_THAT(settings.limited.front(), HasSubstr("NCCL_IB_"));
}

TEST(IbSettings, MergedDevicesAreGroups) {
  const Settings settings = read({{"NCCL_NET_FORCE_MERGE", "a,b;c,d,e;;"}}).value();
  EXPECT_THAT(settings.merged, ElementsAre(ElementsAre("a", "b"), ElementsAre("c", "d", "e")));
  EXPECT_THAT(read({{"NCCL_NET_FORCE_MERGE", "a,b,c,d,e"}}).error().text, HasSubstr("at most 4"));
}

TEST(IbSettings, MergeLevelIsNcclsAndMergeNicsTurnsItOff) {
  EXPECT_EQ(read({}).value().merge_level, MergeLevel::kPort);
  EXPECT_EQ(read({{"NCCL_NET_MERGE_LEVEL", "LOC"}}).value().merge_level, MergeLevel::kLoc);
  EXPECT_EQ(read({{"NCCL_NET_MERGE_LEVEL", "PXN"}}).value().merge_level, MergeLevel::kPxb);
  const Texts off = {{"NCCL_NET_MERGE_LEVEL", "SYS"}, {"NCCL_IB_MERGE_NICS", "0"}};
  EXPECT_EQ(read(off).value().merge_level, MergeLevel::kLoc);
  EXPECT_FALSE(read({}).value().keeps_rails_apart);
  EXPECT_TRUE(read({{"NCCL_NET_MERGE_POLICY", "RAIL"}}).value().keeps_rails_apart);
}

TEST(IbSettings, EncryptionIsRefusedBecauseRdmaSendsInClear) {
  EXPECT_THAT(read({{"PLEXUS_NET_SECURITY", "tls"}}).error().text, HasSubstr("sends in clear"));
}

}  // namespace
}  // namespace plexus::net_ib
