// SPDX-License-Identifier: Apache-2.0
// The local rendezvous of ranks of one process, in any order of arrival and departure.
#include "core/transport/memory/direct.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

constexpr uint64_t kGroup = 5;
constexpr size_t kStride = 4096;
constexpr LocalRendezvous::Key kKey{.group = kGroup, .source = 0, .target = 1, .index = 0};

TEST(LocalRendezvous, TheMakerMayHaveLeftWhenTheOtherComes) {
  LocalRendezvous rendezvous;
  auto made = rendezvous.meet(kKey, 0, kStride, {});
  ASSERT_TRUE(made.has_value());
  made.value()->memory()[0] = std::byte{42};
  rendezvous.leave(kGroup, 0, 2);
  const auto taken = rendezvous.meet(kKey, 1, kStride, {});
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken.value(), made.value());
  rendezvous.leave(kGroup, 1, 2);
  EXPECT_EQ(rendezvous.groups(), 0U);
}

TEST(LocalRendezvous, WhoComesForARankThatHasLeftGetsNothing) {
  LocalRendezvous rendezvous;
  rendezvous.leave(kGroup, 1, 2);
  const auto none = rendezvous.meet(kKey, 0, kStride, {});
  ASSERT_TRUE(none.has_value());
  EXPECT_EQ(none.value(), nullptr);
  rendezvous.leave(kGroup, 0, 2);
  EXPECT_EQ(rendezvous.groups(), 0U);
}

TEST(LocalRendezvous, WhatIsNeverTakenGoesWithTheRankItIsFor) {
  LocalRendezvous rendezvous;
  const auto made = rendezvous.meet(kKey, 0, kStride, {});
  ASSERT_TRUE(made.has_value());
  rendezvous.leave(kGroup, 1, 3);
  EXPECT_EQ(made.value().use_count(), 1);
  rendezvous.leave(kGroup, 0, 3);
  EXPECT_EQ(rendezvous.groups(), 1U) << "a third rank is there";
  rendezvous.leave(kGroup, 2, 3);
  EXPECT_EQ(rendezvous.groups(), 0U);
}

TEST(LocalRendezvous, WhatIsWithdrawnMeetsNobody) {
  LocalRendezvous rendezvous;
  const auto made = rendezvous.meet(kKey, 0, kStride, {});
  ASSERT_TRUE(made.has_value());
  rendezvous.withdraw(kGroup, 1);
  const auto kept = rendezvous.meet(kKey, 1, kStride, {});
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept.value(), made.value()) << "rank 1 had made nothing";
  const auto again = rendezvous.meet(kKey, 0, kStride, {});
  rendezvous.withdraw(kGroup, 0);
  const auto fresh = rendezvous.meet(kKey, 1, kStride, {});
  ASSERT_TRUE(again.has_value() && fresh.has_value());
  EXPECT_NE(fresh.value(), again.value());
}

TEST(LocalRendezvous, GroupsDoNotMeet) {
  LocalRendezvous rendezvous;
  const auto one = rendezvous.meet(kKey, 0, kStride, {});
  LocalRendezvous::Key other = kKey;
  other.group = kGroup + 1;
  const auto two = rendezvous.meet(other, 1, kStride, {});
  ASSERT_TRUE(one.has_value() && two.has_value());
  EXPECT_NE(one.value(), two.value());
}

}  // namespace
}  // namespace plexus
