// SPDX-License-Identifier: Apache-2.0
// The hand-over of the hub as a state machine: input are messages, losses and time, output are
// messages.
#include "core/bootstrap/handover.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Stage = HandOver::Stage;

constexpr uint64_t kWorld = 42;
constexpr uint64_t kHostProcess = 1000;

class HandOverTest : public ::testing::Test {
 protected:
  /// Ranks 0 to 3; rank 0, which is in the hub's process, has left.
  void SetUp() override {
    for (uint32_t rank = 0; rank < 4; ++rank) {
      ASSERT_TRUE(
          hub_.join({.rank = rank, .nranks = 4, .process = kHostProcess + rank, .host = "node"})
              .has_value());
    }
    leave(0);
    sent_.clear();
  }
  void leave(uint32_t rank) {
    ASSERT_TRUE(hub_.take(rank, {.type = MessageType::kLeave}).has_value());
    hand_over_.miss(rank, now_);
  }
  void lose(uint32_t rank) {
    hub_.lose(rank);
    hand_over_.miss(rank, now_);
  }
  Result<void> pause(uint32_t rank) {
    return hand_over_.take(rank, {.type = MessageType::kPause}, now_);
  }
  Result<void> accept(uint32_t rank) {
    return hand_over_.take(rank, {.type = MessageType::kHost, .payload = encode(HubAddress{})},
                           now_);
  }
  Result<void> refuse(uint32_t rank) {
    return hand_over_.take(rank, {.type = MessageType::kHost}, now_);
  }
  void begin_and_pause_all() {
    hand_over_.begin(now_, true);
    for (const uint32_t rank : hub_.present()) {
      ASSERT_TRUE(pause(rank).has_value());
    }
  }
  /// The ranks that were sent a message of this type since the last call.
  std::vector<uint32_t> told(MessageType type) {
    std::vector<uint32_t> ranks;
    std::erase_if(sent_, [&](const auto& one) {
      const bool is_it = one.second.type == type;
      if (is_it) {
        ranks.push_back(one.first);
        last_ = one.second;
      }
      return is_it;
    });
    return ranks;
  }

  Clock::time_point now_ = Clock::time_point() + 1h;
  std::vector<std::pair<uint32_t, Message>> sent_;
  Message last_;
  Hub::Send send_ = [this](uint32_t to, const Message& message) {
    sent_.emplace_back(to, message);
  };
  Hub hub_{kWorld, kHostProcess, send_};
  HandOver hand_over_{hub_, HandOverTimes{}, send_};
};

TEST_F(HandOverTest, GoesToTheLowestRankWhenAllHaveSentTheirLastMessage) {
  hand_over_.begin(now_, true);
  EXPECT_THAT(told(MessageType::kPause), ElementsAre(1, 2, 3));
  ASSERT_TRUE(pause(2).has_value());
  ASSERT_TRUE(pause(1).has_value());
  EXPECT_TRUE(sent_.empty()) << "rank 3 may still send";
  ASSERT_TRUE(pause(3).has_value());
  EXPECT_THAT(told(MessageType::kHost), ElementsAre(1));
  EXPECT_EQ(last_.payload, hub_.to_bytes());
  ASSERT_TRUE(accept(1).has_value());
  EXPECT_THAT(told(MessageType::kMove), ElementsAre(1, 2, 3));
  EXPECT_EQ(last_.peer, 1U);
  EXPECT_EQ(decode_hub_address(last_.payload).value().name, hub_.name_of(1));
  EXPECT_EQ(hand_over_.stage(), Stage::kMoved);
}

TEST_F(HandOverTest, WaitsWhileRanksLeaveOneAfterTheOther) {
  const HandOverTimes times;
  hand_over_.begin(now_, false);
  for (const uint32_t rank : {1U, 2U}) {
    now_ += times.grace * 3 / 4;
    EXPECT_THAT(hand_over_.advance(now_), IsEmpty());
    leave(rank);
  }
  EXPECT_TRUE(sent_.empty());
  now_ += times.grace;
  EXPECT_THAT(hand_over_.advance(now_), IsEmpty());
  EXPECT_THAT(told(MessageType::kPause), ElementsAre(3));
}

TEST_F(HandOverTest, TellsWhoDoesNotAnswer) {
  hand_over_.begin(now_, true);
  ASSERT_TRUE(pause(1).has_value());
  now_ += HandOverTimes().pause;
  EXPECT_THAT(hand_over_.advance(now_), ElementsAre(2, 3));
  lose(2);
  EXPECT_THAT(told(MessageType::kHost), IsEmpty());
  lose(3);
  EXPECT_THAT(told(MessageType::kHost), ElementsAre(1));
}

TEST_F(HandOverTest, GoesOnWhenAMemberLeavesOrDiesMeanwhile) {
  hand_over_.begin(now_, true);
  ASSERT_TRUE(pause(2).has_value());
  leave(1);
  EXPECT_THAT(told(MessageType::kHost), IsEmpty());
  lose(3);
  EXPECT_THAT(told(MessageType::kHost), ElementsAre(2));
}

TEST_F(HandOverTest, AsksTheNextWhenTheHeirDiesRefusesOrIsSlow) {
  begin_and_pause_all();
  EXPECT_THAT(told(MessageType::kHost), ElementsAre(1));
  lose(1);
  EXPECT_THAT(told(MessageType::kHost), ElementsAre(2));
  EXPECT_EQ(last_.payload, hub_.to_bytes()) << "in which rank 1 is dead";
  ASSERT_TRUE(refuse(2).has_value());
  EXPECT_THAT(told(MessageType::kHost), ElementsAre(3));
  ASSERT_TRUE(accept(3).has_value());
  EXPECT_THAT(told(MessageType::kMove), ElementsAre(2, 3));
}

TEST_F(HandOverTest, DoesNotFollowAnHeirThatIsTooSlow) {
  begin_and_pause_all();
  now_ += HandOverTimes().offer;
  EXPECT_THAT(hand_over_.advance(now_), IsEmpty());
  EXPECT_THAT(told(MessageType::kHost), ElementsAre(1, 2));
  ASSERT_TRUE(accept(1).has_value());
  EXPECT_EQ(hand_over_.stage(), Stage::kOffering);
  ASSERT_TRUE(accept(2).has_value());
  EXPECT_EQ(last_.type, MessageType::kHost);
  EXPECT_THAT(told(MessageType::kMove), ElementsAre(1, 2, 3));
  EXPECT_EQ(last_.peer, 2U);
}

TEST_F(HandOverTest, StaysWhenNobodyTakesOver) {
  begin_and_pause_all();
  for (const uint32_t rank : {1U, 2U, 3U}) {
    ASSERT_TRUE(refuse(rank).has_value());
  }
  EXPECT_EQ(hand_over_.stage(), Stage::kStays);
  EXPECT_THAT(told(MessageType::kLeave), ElementsAre(1, 2, 3)) << "its loss is no failure";
  EXPECT_THAT(told(MessageType::kMove), ElementsAre(1, 2, 3));
  EXPECT_TRUE(last_.payload.empty());
  EXPECT_FALSE(hand_over_.takes(1, MessageType::kGather)) << "members go on";
  told(MessageType::kPause);
  hand_over_.begin(now_, true);
  EXPECT_TRUE(told(MessageType::kPause).empty()) << "once is enough";
}

TEST_F(HandOverTest, CutsALargeStateInPieces) {
  const std::string large(kBlobBytesMax, 'x');
  for (const uint32_t rank : {1U, 2U, 3U}) {
    ASSERT_TRUE(hub_.take(rank, {.type = MessageType::kGather, .group = kWorld, .payload = large})
                    .has_value());
  }
  begin_and_pause_all();
  std::string state;
  uint64_t left = 4;
  for (const auto& [to, message] : sent_) {
    if (message.type == MessageType::kHost) {
      EXPECT_EQ(message.tag, --left);
      state += message.payload;
    }
  }
  EXPECT_EQ(left, 0U);
  EXPECT_EQ(state, hub_.to_bytes());
}

TEST_F(HandOverTest, RefusesWhatBreaksTheRules) {
  EXPECT_TRUE(pause(1).has_error()) << "unasked";
  EXPECT_TRUE(accept(1).has_error()) << "unasked";
  hand_over_.begin(now_, true);
  ASSERT_TRUE(pause(1).has_value());
  EXPECT_TRUE(pause(1).has_error()) << "twice";
  EXPECT_TRUE(accept(1).has_error()) << "too early";
  EXPECT_TRUE(hand_over_.takes(1, MessageType::kGather));
  EXPECT_FALSE(hand_over_.takes(2, MessageType::kGather));
  EXPECT_TRUE(hand_over_.take(1, {.type = MessageType::kGather, .group = kWorld}, now_).has_error())
      << "after its last message";
}

}  // namespace
}  // namespace plexus
