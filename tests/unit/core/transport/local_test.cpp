// SPDX-License-Identifier: Apache-2.0
// Where ranks of one process meet, in whatever order they come and leave.
#include "core/transport/local.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

constexpr uint64_t kGroup = 5;
constexpr size_t kStride = 4096;
constexpr LocalMeetings::Key kKey{.group = kGroup, .source = 0, .target = 1, .index = 0};

TEST(LocalMeetings, TheMakerMayHaveLeftWhenTheOtherComes) {
  LocalMeetings meetings;
  auto made = meetings.meet(kKey, 0, kStride, {});
  ASSERT_TRUE(made.has_value());
  made.value()->memory()[0] = std::byte{42};
  meetings.leave(kGroup, 0, 2);
  const auto taken = meetings.meet(kKey, 1, kStride, {});
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken.value(), made.value());
  meetings.leave(kGroup, 1, 2);
  EXPECT_EQ(meetings.groups(), 0U);
}

TEST(LocalMeetings, WhoComesForARankThatHasLeftGetsNothing) {
  LocalMeetings meetings;
  meetings.leave(kGroup, 1, 2);
  const auto none = meetings.meet(kKey, 0, kStride, {});
  ASSERT_TRUE(none.has_value());
  EXPECT_EQ(none.value(), nullptr);
  meetings.leave(kGroup, 0, 2);
  EXPECT_EQ(meetings.groups(), 0U);
}

TEST(LocalMeetings, WhatIsNeverTakenGoesWithTheRankItIsFor) {
  LocalMeetings meetings;
  const auto made = meetings.meet(kKey, 0, kStride, {});
  ASSERT_TRUE(made.has_value());
  meetings.leave(kGroup, 1, 3);
  EXPECT_EQ(made.value().use_count(), 1);
  meetings.leave(kGroup, 0, 3);
  EXPECT_EQ(meetings.groups(), 1U) << "a third rank is there";
  meetings.leave(kGroup, 2, 3);
  EXPECT_EQ(meetings.groups(), 0U);
}

TEST(LocalMeetings, GroupsDoNotMeet) {
  LocalMeetings meetings;
  const auto one = meetings.meet(kKey, 0, kStride, {});
  LocalMeetings::Key other = kKey;
  other.group = kGroup + 1;
  const auto two = meetings.meet(other, 1, kStride, {});
  ASSERT_TRUE(one.has_value() && two.has_value());
  EXPECT_NE(one.value(), two.value());
}

}  // namespace
}  // namespace plexus
