// SPDX-License-Identifier: Apache-2.0
#include "plugins/collnet-aggregator/groups.hpp"

#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::aggregator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class GroupsTest : public ::testing::Test {
 protected:
  Result<void> join(int link, uint32_t member, uint32_t members) {
    groups_.open(link, "somebody");
    const WireHello hello = {members, member, {}};
    const auto bytes =
        make_frame({.kind = FrameKind::kHello}, std::as_bytes(std::span(&hello, size_t{1})));
    return groups_.feed(link, *bytes);
  }
  /// What kinds of frames a link was sent.
  std::map<int, std::vector<FrameKind>> sent_;
  Groups groups_{[this](int link, const std::shared_ptr<const Bytes>& bytes) {
    WireFrame frame;
    std::memcpy(&frame, bytes->data(), sizeof(frame));
    sent_[link].push_back(frame.kind);
  }};
};

TEST_F(GroupsTest, IsReadyWhenAllMembersHaveJoined) {
  EXPECT_TRUE(join(1, 0, 2).has_value());
  EXPECT_TRUE(sent_.empty());
  EXPECT_TRUE(join(2, 1, 2).has_value());
  EXPECT_THAT(sent_[1], ElementsAre(FrameKind::kReady));
  EXPECT_THAT(sent_[2], ElementsAre(FrameKind::kReady));
}

TEST_F(GroupsTest, NobodyJoinsAGroupThatHasFailed) {
  EXPECT_TRUE(join(1, 0, 3).has_value());
  EXPECT_TRUE(join(2, 1, 3).has_value());
  groups_.close(2, "it closed the connection");
  EXPECT_THAT(sent_[1], ElementsAre(FrameKind::kError));
  const auto late = join(3, 2, 3);
  ASSERT_TRUE(late.has_error()) << "it would wait for ever";
  EXPECT_THAT(late.error().text, HasSubstr("member 1 of 3 (somebody) is gone"));
  EXPECT_EQ(sent_.count(-1), 0U);
  EXPECT_EQ(sent_.count(3), 0U);
  groups_.close(1, "it ended");
  EXPECT_EQ(groups_.group_count(), 0U);
}

}  // namespace
}  // namespace plexus::aggregator
