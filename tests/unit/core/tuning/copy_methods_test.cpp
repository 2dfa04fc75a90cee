// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/copy_methods.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

constexpr uint64_t kSize = uint64_t{256} << 10;

/// Times for each size; `slots` for both directions.
HostCopyMethods methods_with(uint64_t slots, uint64_t attach, uint64_t mapped) {
  HostCopyMethods methods{.attach = true, .attach_bytes = -1, .measured = true, .rates = {}};
  methods.rates.near.line_ns = 250;
  methods.rates.near.exchange_ns[0].fill(slots);
  methods.rates.near.exchange_ns[1].fill(attach);
  methods.rates.near.exchange_ns[2].fill(mapped);
  return methods;
}

bool attaches(const HostCopyMethods& methods, const MessageTraits& message) {
  return choose_copy_method(methods, message).attach_bytes_min <= message.size_bytes;
}

TEST(ChooseCopyMethod, AttachesWhereThatIsClearlyFaster) {
  EXPECT_TRUE(attaches(methods_with(1000, 780, 500), {.size_bytes = kSize}));
  EXPECT_FALSE(attaches(methods_with(1000, 820, 500), {.size_bytes = kSize}));
}

TEST(ChooseCopyMethod, KnowsThatSlotsAreCopiedByTwoCoresWhenDataGoesOneWay) {
  const MessageTraits one_way{.size_bytes = kSize, .both_ways = false};
  EXPECT_FALSE(attaches(methods_with(1000, 700, 500), one_way));
  EXPECT_TRUE(attaches(methods_with(1000, 390, 500), one_way));
}

TEST(ChooseCopyMethod, KnowsThatAReductionReadsWhatItFetchedAgain) {
  const MessageTraits reduction{.size_bytes = kSize, .reduces = true};
  EXPECT_FALSE(attaches(methods_with(1000, 750, 500), reduction));
  EXPECT_TRUE(attaches(methods_with(1000, 700, 500), reduction));
}

TEST(ChooseCopyMethod, CopiesMessagesThatAreShorterThanASystemCall) {
  EXPECT_FALSE(attaches(methods_with(1000, 700, 500), {.size_bytes = 4095}));
}

TEST(ChooseCopyMethod, LeavesTheMappingOnlyWhenItIsClearlySlower) {
  const MessageTraits message{.size_bytes = kSize};
  EXPECT_TRUE(choose_copy_method(methods_with(1000, 900, 500), message).maps);
  EXPECT_TRUE(choose_copy_method(methods_with(1000, 900, 950), message).maps);
  EXPECT_FALSE(choose_copy_method(methods_with(1000, 900, 1000), message).maps);
  EXPECT_TRUE(choose_copy_method(methods_with(1000, 0, 1000), message).maps);
}

TEST(ChooseCopyMethod, NeverReadsWhatTheKernelRefuses) {
  HostCopyMethods refused = methods_with(1000, 1, 1000);
  refused.attach = false;
  refused.attach_bytes = 0;
  EXPECT_FALSE(attaches(refused, {.size_bytes = kSize}));
  EXPECT_TRUE(choose_copy_method(refused, {.size_bytes = kSize}).maps);
  EXPECT_FALSE(attaches(methods_with(1000, 0, 500), {.size_bytes = kSize}));
}

TEST(ChooseCopyMethod, FollowsTheSettingWhateverWasMeasured) {
  HostCopyMethods reported = methods_with(1, 1000, 1);
  reported.attach_bytes = 8192;
  EXPECT_TRUE(attaches(reported, {.size_bytes = 8192}));
  EXPECT_FALSE(attaches(reported, {.size_bytes = 8191}));
}

// An Intel Xeon with cores far from each other: two copies at 9 GB/s, or one by system calls at 15
// GB/s.
TEST(ChooseCopyMethod, AttachesWhereACopyCostsMoreThanASystemCall) {
  HostCopyMethods intel = methods_with(1, 1, 1);
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

TEST(HostLink, IsAsFastAsItsFastestMethod) {
  HostCopyMethods methods = methods_with(kSize / 8, kSize / 16, kSize / 32);
  EXPECT_EQ(bandwidth_mbit_per_s(methods), 128'000U);
  methods.attach = false;
  EXPECT_EQ(bandwidth_mbit_per_s(methods), 64'000U);
  EXPECT_GT(message_latency_ns(methods), 250U);
}

}  // namespace
}  // namespace plexus
