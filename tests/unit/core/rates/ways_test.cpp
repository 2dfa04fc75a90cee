// SPDX-License-Identifier: Apache-2.0
#include "core/rates/ways.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

constexpr uint64_t kSize = uint64_t{256} << 10;

/// Times for each size; `slots` for both ways.
HostWays ways_with(uint64_t slots, uint64_t attach, uint64_t mapped) {
  HostWays ways{.attach = true, .attach_bytes = -1, .measured = true, .rates = {}};
  ways.rates.near.line_ns = 250;
  ways.rates.near.exchange_ns[0].fill(slots);
  ways.rates.near.exchange_ns[1].fill(attach);
  ways.rates.near.exchange_ns[2].fill(mapped);
  return ways;
}

bool attaches(const HostWays& ways, const MessageTraits& message) {
  return choose_way(ways, message).attach_bytes_min <= message.size_bytes;
}

TEST(ChooseWay, AttachesWhereThatIsClearlyFaster) {
  EXPECT_TRUE(attaches(ways_with(1000, 780, 500), {.size_bytes = kSize}));
  EXPECT_FALSE(attaches(ways_with(1000, 820, 500), {.size_bytes = kSize}));
}

TEST(ChooseWay, KnowsThatSlotsAreCopiedByTwoCoresWhenDataGoesOneWay) {
  const MessageTraits one_way{.size_bytes = kSize, .both_ways = false};
  EXPECT_FALSE(attaches(ways_with(1000, 700, 500), one_way));
  EXPECT_TRUE(attaches(ways_with(1000, 390, 500), one_way));
}

TEST(ChooseWay, KnowsThatAReductionReadsWhatItFetchedAgain) {
  const MessageTraits reduction{.size_bytes = kSize, .reduces = true};
  EXPECT_FALSE(attaches(ways_with(1000, 750, 500), reduction));
  EXPECT_TRUE(attaches(ways_with(1000, 700, 500), reduction));
}

TEST(ChooseWay, CopiesMessagesThatAreShorterThanASystemCall) {
  EXPECT_FALSE(attaches(ways_with(1000, 700, 500), {.size_bytes = 4095}));
}

TEST(ChooseWay, LeavesTheMappingOnlyWhenItIsClearlySlower) {
  const MessageTraits message{.size_bytes = kSize};
  EXPECT_TRUE(choose_way(ways_with(1000, 900, 500), message).maps);
  EXPECT_TRUE(choose_way(ways_with(1000, 900, 950), message).maps);
  EXPECT_FALSE(choose_way(ways_with(1000, 900, 1000), message).maps);
  EXPECT_TRUE(choose_way(ways_with(1000, 0, 1000), message).maps);
}

TEST(ChooseWay, NeverReadsWhatTheKernelRefuses) {
  HostWays refused = ways_with(1000, 1, 1000);
  refused.attach = false;
  refused.attach_bytes = 0;
  EXPECT_FALSE(attaches(refused, {.size_bytes = kSize}));
  EXPECT_TRUE(choose_way(refused, {.size_bytes = kSize}).maps);
  EXPECT_FALSE(attaches(ways_with(1000, 0, 500), {.size_bytes = kSize}));
}

TEST(ChooseWay, FollowsTheSettingWhateverWasMeasured) {
  HostWays told = ways_with(1, 1000, 1);
  told.attach_bytes = 8192;
  EXPECT_TRUE(attaches(told, {.size_bytes = 8192}));
  EXPECT_FALSE(attaches(told, {.size_bytes = 8191}));
}

// An Intel Xeon with cores far from each other: two copies at 9 GB/s, or one by system calls at 15
// GB/s.
TEST(ChooseWay, AttachesWhereACopyCostsMoreThanASystemCall) {
  HostWays intel = ways_with(1, 1, 1);
  for (size_t size = 0; size < kRatesBytes.size(); ++size) {
    const uint64_t bytes = kRatesBytes[size];
    intel.rates.near.exchange_ns[0][size] = 2 * bytes / 9 + 500;
    intel.rates.near.exchange_ns[1][size] = bytes / 15 + 1500;
    intel.rates.near.exchange_ns[2][size] = bytes / 9 + 250;
  }
  EXPECT_FALSE(attaches(intel, {.size_bytes = 4096}));
  EXPECT_TRUE(attaches(intel, {.size_bytes = 32768}));
  EXPECT_TRUE(attaches(intel, {.size_bytes = 8 << 20}));
  EXPECT_TRUE(attaches(intel, {.size_bytes = 8 << 20, .both_ways = false}));
}

TEST(HostLink, IsAsFastAsItsFastestWay) {
  HostWays ways = ways_with(kSize / 8, kSize / 16, kSize / 32);
  EXPECT_EQ(bandwidth_mbit_per_s(ways), 128'000U);
  ways.attach = false;
  EXPECT_EQ(bandwidth_mbit_per_s(ways), 64'000U);
  EXPECT_GT(message_latency_ns(ways), 250U);
}

}  // namespace
}  // namespace plexus
