// SPDX-License-Identifier: Apache-2.0
#include "core/join/introducer.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kWorld = 1;

class IntroducerTest : public ::testing::Test {
 protected:
  /// Rank `rank` joins over connection `client`, which is a process.
  Result<void> join(uint32_t client, uint32_t rank, uint32_t nranks = 3, uint32_t version = 1) {
    const JoinInfo info{
        .rank = rank,
        .nranks = nranks,
        .version = version,
        .process = {.process = client, .pid = static_cast<int32_t>(100 + client), .host = "node"}};
    return introducer_.take(client, {.type = MessageType::kJoin, .payload = encode(info)});
  }
  [[nodiscard]] std::string failure_of(uint32_t client) const {
    for (const auto& [to, message] : sent_) {
      if (to == client && message.type == MessageType::kFail) {
        return decode_error(message.payload).message();
      }
    }
    return "";
  }

  std::vector<std::pair<uint32_t, Message>> sent_;
  Introducer introducer_{kWorld, [this](uint32_t client, const Message& message) {
                           sent_.emplace_back(client, message);
                         }};
};

TEST_F(IntroducerTest, GivesTheTableToTheRootAndAWordToTheOthers) {
  ASSERT_TRUE(join(7, 2).has_value());
  ASSERT_TRUE(join(8, 0).has_value());
  EXPECT_TRUE(sent_.empty());
  ASSERT_TRUE(join(7, 1).has_value());
  ASSERT_EQ(sent_.size(), 2U);
  EXPECT_EQ(sent_[0].first, 7U);
  EXPECT_EQ(sent_[0].second.type, MessageType::kJoined);
  EXPECT_EQ(sent_[1].first, 8U);
  const auto table = ProcessTable::decode(sent_[1].second.payload);
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(table.value().nprocesses(), 2U);
  EXPECT_EQ(table.value().process_of(2), 1U);
  EXPECT_EQ(table.value().name_of(2), "rank 2 (node:107)");
}

TEST_F(IntroducerTest, NamesWhoDiedBeforeItPassedTheTableOn) {
  for (const uint32_t rank : {0U, 1U, 2U}) {
    ASSERT_TRUE(join(rank + 1, rank).has_value());
  }
  ASSERT_TRUE(introducer_.take(2, {.type = MessageType::kLeave}).has_value());
  introducer_.lose(1);
  EXPECT_THAT(failure_of(3), HasSubstr("rank 0 (node:101) died or lost its connection"));
  EXPECT_EQ(failure_of(2), "") << "whoever has the table is on its own";
  introducer_.lose(2);
  EXPECT_EQ(sent_.size(), 4U) << "rank 1 ended its connection";
}

TEST_F(IntroducerTest, FailsTheJobWhenTwoSayTheyAreOneRank) {
  ASSERT_TRUE(join(1, 0).has_value());
  ASSERT_TRUE(join(2, 0).has_value());
  EXPECT_THAT(failure_of(1), HasSubstr("node:102 and rank 0 (node:101) both say they are rank 0"));
  EXPECT_EQ(failure_of(1), failure_of(2));
  ASSERT_TRUE(join(3, 1).has_value());
  EXPECT_THAT(failure_of(3), HasSubstr("the job failed before rank 1 joined"));
}

TEST_F(IntroducerTest, FailsTheJobWhenRanksDiffer) {
  ASSERT_TRUE(join(1, 0, 3).has_value());
  ASSERT_TRUE(join(2, 1, 4).has_value());
  EXPECT_THAT(failure_of(1), AllOf(HasSubstr("4 ranks"), HasSubstr("says 3")));
}

TEST_F(IntroducerTest, FailsTheJobWhenVersionsDiffer) {
  ASSERT_TRUE(join(1, 0).has_value());
  ASSERT_TRUE(join(2, 1, 3, 9).has_value());
  EXPECT_THAT(failure_of(1), AllOf(HasSubstr("has version 9"), HasSubstr("has 1")));
}

TEST_F(IntroducerTest, NamesWhoDiedBeforeAllHadJoined) {
  ASSERT_TRUE(join(1, 0).has_value());
  ASSERT_TRUE(join(2, 1).has_value());
  introducer_.lose(2);
  EXPECT_THAT(failure_of(1), HasSubstr("rank 1 (node:102) died"));
  EXPECT_FALSE(introducer_.have_all_joined());
}

TEST_F(IntroducerTest, SaysWhoDidNotCome) {
  ASSERT_TRUE(join(1, 1, 4).has_value());
  introducer_.give_up();
  EXPECT_THAT(failure_of(1), AllOf(HasSubstr("3 of 4 ranks did not come (rank 0, 2, 3)"),
                                   HasSubstr("PLEXUS_BOOTSTRAP_TIMEOUT")));
}

TEST_F(IntroducerTest, ChoosesWhoSaysForTheJobThatRanksAreLate) {
  ASSERT_TRUE(join(1, 2, 4).has_value());
  ASSERT_TRUE(join(2, 1, 4).has_value());
  const Error late = fail(Code::kInProgress, "others wait");
  const auto ask = [&](uint32_t client, uint32_t rank) {
    sent_.clear();
    ASSERT_TRUE(
        introducer_
            .take(client, {.type = MessageType::kFail, .from = rank, .payload = encode(late)})
            .has_value());
  };
  ask(1, 2);
  EXPECT_TRUE(sent_.empty()) << "the lowest rank that has come asks for all";
  for (const uint32_t teller : {1U, kNobody}) {
    ask(2, 1);
    ASSERT_EQ(sent_.size(), 2U);
    for (const auto& [client, message] : sent_) {
      EXPECT_EQ(message.payload, "still waiting for rank 0, 3: others wait");
      EXPECT_EQ(message.from, teller);
    }
  }
  ASSERT_TRUE(join(3, 0, 4).has_value());
  ask(3, 0);
  ASSERT_EQ(sent_.size(), 3U);
  EXPECT_EQ(sent_[0].second.from, 0U) << "for rank 3 alone";
}

TEST_F(IntroducerTest, SaysThatItMayHaveRefusedThoseWhoDidNotCome) {
  ASSERT_TRUE(join(1, 1, 4).has_value());
  introducer_.give_up(3);
  EXPECT_THAT(failure_of(1), AllOf(HasSubstr("did not come (rank 0, 2, 3)"),
                                   HasSubstr("3 connections were refused since the process that "
                                             "made the unique id has no file descriptor left")));
}

TEST_F(IntroducerTest, PassesOnWhyARankCannotTakePart) {
  ASSERT_TRUE(join(1, 0).has_value());
  ASSERT_TRUE(join(2, 1).has_value());
  const Error error = fail(Code::kSystemError, "no memory");
  ASSERT_TRUE(introducer_.take(2, {.type = MessageType::kFail, .from = 1, .payload = encode(error)})
                  .has_value());
  EXPECT_THAT(failure_of(1), HasSubstr("rank 1 (node:102) failed: no memory"));
}

TEST_F(IntroducerTest, IsAloneWhenAllHaveTheTable) {
  ASSERT_TRUE(join(1, 0, 2).has_value());
  ASSERT_TRUE(join(2, 1, 2).has_value());
  ASSERT_TRUE(introducer_.take(1, {.type = MessageType::kLeave}).has_value());
  EXPECT_FALSE(introducer_.is_alone());
  ASSERT_TRUE(introducer_.take(2, {.type = MessageType::kLeave}).has_value());
  EXPECT_TRUE(introducer_.is_alone());
}

TEST_F(IntroducerTest, GivesTheTableToWhoHasWaitedForIt) {
  ASSERT_TRUE(join(1, 0, 2).has_value());
  ASSERT_TRUE(introducer_.take(1, {.type = MessageType::kTable, .tag = 1}).has_value());
  EXPECT_TRUE(sent_.empty()) << "there is none yet";
  ASSERT_TRUE(join(2, 1, 2).has_value());
  ASSERT_TRUE(introducer_.take(2, {.type = MessageType::kTable, .tag = 2}).has_value());
  ASSERT_EQ(sent_.size(), 3U);
  EXPECT_EQ(sent_.back().first, 2U);
  EXPECT_EQ(sent_.back().second.type, MessageType::kTable);
  EXPECT_TRUE(ProcessTable::decode(sent_.back().second.payload).has_value());
}

TEST_F(IntroducerTest, RefusesOtherMessages) {
  EXPECT_TRUE(introducer_.take(1, {.type = MessageType::kGather}).has_error());
  EXPECT_TRUE(introducer_.take(1, {.type = MessageType::kJoin, .payload = "x"}).has_error());
}

}  // namespace
}  // namespace plexus
