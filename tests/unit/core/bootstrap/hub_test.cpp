// SPDX-License-Identifier: Apache-2.0
// The hub as a state machine: messages in, messages out.
#include "core/bootstrap/hub.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kWorld = 42;
constexpr uint64_t kHostProcess = 1000;

class HubTest : public ::testing::Test {
 protected:
  struct Sent {
    uint32_t to;
    Message message;
  };

  Result<void> join(uint32_t rank, uint32_t nranks = 3) {
    return hub_.join({.rank = rank,
                      .nranks = nranks,
                      .version = 1,
                      .pid = static_cast<int32_t>(100 + rank),
                      .process = kHostProcess + rank,
                      .host = "node"});
  }
  void join_all(uint32_t nranks = 3) {
    for (uint32_t rank = 0; rank < nranks; ++rank) {
      ASSERT_TRUE(join(rank, nranks).has_value());
    }
    sent_.clear();
  }
  Result<void> gather(uint32_t rank,
                      const std::string& blob,
                      uint64_t number = 0,
                      uint64_t group = kWorld) {
    return hub_.take(
        rank, {.type = MessageType::kGather, .group = group, .tag = number, .payload = blob});
  }
  Result<void> probe(uint32_t rank, uint32_t peer, uint64_t group = kWorld) {
    return hub_.take(
        rank, {.type = MessageType::kProbe, .peer = peer, .group = group, .payload = "question"});
  }
  Result<void> open_group(uint32_t rank, uint64_t group, const std::vector<uint32_t>& ranks) {
    return hub_.take(rank, {.type = MessageType::kGroup, .group = group, .payload = encode(ranks)});
  }
  Result<void> leave_group(uint32_t rank, uint64_t group, const std::string& record = "") {
    return hub_.take(rank, {.type = MessageType::kLeaveGroup, .group = group, .payload = record});
  }
  /// The error that `rank` was sent; "": none.
  [[nodiscard]] std::string failure_of(uint32_t rank, uint64_t group = kWorld) const {
    for (const Sent& sent : sent_) {
      if (sent.to == rank && sent.message.type == MessageType::kFail &&
          sent.message.group == group) {
        return std::string(decode_error(sent.message.payload).message());
      }
    }
    return "";
  }

  std::vector<Sent> sent_;
  Hub hub_{kWorld, kHostProcess, [this](uint32_t to, const Message& message) {
             sent_.push_back({to, message});
           }};
};

TEST_F(HubTest, SaysWhoIsMissingWhenAGatherTakesTooLong) {
  join_all();
  ASSERT_TRUE(gather(1, "mine", 7).has_value());
  const Error late = fail(Code::kTimeout, "not all ranks made this call within 3 s");
  ASSERT_TRUE(
      hub_.take(1, {.type = MessageType::kFail, .group = kWorld, .tag = 7, .payload = encode(late)})
          .has_value());
  for (const uint32_t rank : {0U, 1U, 2U}) {
    EXPECT_THAT(failure_of(rank),
                AllOf(HasSubstr("waiting for rank 0 (node:100), rank 2 (node:102)"),
                      HasSubstr("within 3 s")));
  }
}

TEST_F(HubTest, ATimeoutOfNoGatherIsAFailureLikeOthers) {
  join_all();
  const Error late = fail(Code::kTimeout, "a connection took too long");
  ASSERT_TRUE(hub_.take(1, {.type = MessageType::kFail, .group = kWorld, .payload = encode(late)})
                  .has_value());
  EXPECT_EQ(failure_of(1), "");
  EXPECT_THAT(failure_of(0), HasSubstr("rank 1 (node:101) failed: a connection took too long"));
}

TEST_F(HubTest, TellsAllWhoSharesItsProcessWhenTheLastRankCame) {
  ASSERT_TRUE(join(2).has_value());
  ASSERT_TRUE(join(1).has_value());
  EXPECT_FALSE(hub_.all_joined());
  EXPECT_TRUE(sent_.empty());
  ASSERT_TRUE(join(0).has_value());
  EXPECT_TRUE(hub_.all_joined());
  ASSERT_EQ(sent_.size(), 3U);
  EXPECT_EQ(sent_[0].message.type, MessageType::kJoin);
  EXPECT_EQ(sent_[0].message.payload, "rank 0 (node:100)");
}

TEST_F(HubTest, FailsTheJobWhenTwoSayTheyAreOneRank) {
  ASSERT_TRUE(join(0).has_value());
  const auto again = join(0);
  ASSERT_TRUE(again.has_error());
  EXPECT_EQ(again.error().code(), Code::kInvalidUsage);
  EXPECT_THAT(failure_of(0), HasSubstr("both say they are rank 0"));
  EXPECT_TRUE(join(1).has_error()) << "a later one would wait for ever";
}

TEST_F(HubTest, FailsTheJobWhenNumbersOfRanksDiffer) {
  ASSERT_TRUE(join(0, 3).has_value());
  ASSERT_TRUE(join(1, 4).has_error());
  EXPECT_THAT(failure_of(0), AllOf(HasSubstr("4 ranks"), HasSubstr("says 3")));
}

TEST_F(HubTest, SaysWhoDidNotCome) {
  ASSERT_TRUE(join(1, 4).has_value());
  hub_.give_up_joining();
  EXPECT_THAT(failure_of(1),
              AllOf(HasSubstr("3 of 4 ranks did not come"), HasSubstr("rank 0, 2, 3"),
                    HasSubstr("PLEXUS_BOOTSTRAP_TIMEOUT")));
}

TEST_F(HubTest, GathersInRankOrder) {
  join_all();
  ASSERT_TRUE(gather(2, "c").has_value());
  ASSERT_TRUE(gather(0, "a").has_value());
  EXPECT_TRUE(sent_.empty());
  ASSERT_TRUE(gather(1, "b").has_value());
  ASSERT_EQ(sent_.size(), 3U);
  for (const Sent& sent : sent_) {
    EXPECT_EQ(sent.message.type, MessageType::kGathered);
    EXPECT_EQ(decode_blobs(sent.message.payload).value(),
              (std::vector<std::string>{"a", "b", "c"}));
  }
}

/// A process that ends as soon as it has the result must not take the others' results with it.
TEST_F(HubTest, AnswersTheRanksOfItsOwnProcessLast) {
  join_all();
  for (const uint32_t rank : {0U, 1U, 2U}) {
    ASSERT_TRUE(gather(rank, "x").has_value());
  }
  ASSERT_EQ(sent_.size(), 3U);
  EXPECT_EQ(sent_.back().to, 0U);
}

TEST_F(HubTest, KeepsGathersOfDifferentNumbersApart) {
  join_all(2);
  ASSERT_TRUE(gather(0, "first", 0).has_value());
  ASSERT_TRUE(gather(0, "second", 1).has_value());
  ASSERT_TRUE(gather(1, "FIRST", 0).has_value());
  ASSERT_EQ(sent_.size(), 2U);
  EXPECT_EQ(decode_blobs(sent_[0].message.payload).value(),
            (std::vector<std::string>{"first", "FIRST"}));
}

TEST_F(HubTest, PassesControlMessagesOnWithTheirSender) {
  join_all();
  ASSERT_TRUE(
      hub_.take(1,
                {.type = MessageType::kPost, .peer = 2, .group = kWorld, .tag = 5, .payload = "hi"})
          .has_value());
  ASSERT_EQ(sent_.size(), 1U);
  EXPECT_EQ(sent_[0].to, 2U);
  EXPECT_EQ(sent_[0].message.peer, 1U);
  EXPECT_EQ(sent_[0].message.payload, "hi");
}

TEST_F(HubTest, MakesSubgroupsInTheirOwnOrder) {
  join_all();
  for (const uint32_t rank : {0U, 2U}) {
    ASSERT_TRUE(hub_.take(rank, {.type = MessageType::kGroup,
                                 .group = 7,
                                 .payload = encode(std::vector<uint32_t>{2, 0})})
                    .has_value());
  }
  ASSERT_TRUE(gather(0, "zero", 0, 7).has_value());
  ASSERT_TRUE(gather(2, "two", 0, 7).has_value());
  ASSERT_EQ(sent_.size(), 2U);
  EXPECT_EQ(decode_blobs(sent_[0].message.payload).value(),
            (std::vector<std::string>{"two", "zero"}));
  EXPECT_TRUE(gather(1, "one", 1, 7).has_error()) << "rank 1 is not in it";
}

TEST_F(HubTest, TellsTheOthersWhoDied) {
  join_all();
  hub_.lose(1);
  EXPECT_THAT(failure_of(0), HasSubstr("rank 1 (node:101) died"));
  EXPECT_THAT(failure_of(2), HasSubstr("rank 1 (node:101) died"));
  EXPECT_EQ(failure_of(1), "");
  sent_.clear();
  hub_.lose(1);
  EXPECT_TRUE(sent_.empty()) << "once is enough";
}

TEST_F(HubTest, FailsOnlyTheGroupsOfTheDead) {
  join_all();
  for (const uint32_t rank : {0U, 2U}) {
    ASSERT_TRUE(hub_.take(rank, {.type = MessageType::kGroup,
                                 .group = 7,
                                 .payload = encode(std::vector<uint32_t>{0, 2})})
                    .has_value());
  }
  hub_.lose(1);
  EXPECT_EQ(failure_of(0, 7), "");
  EXPECT_NE(failure_of(0), "");
}

TEST_F(HubTest, TellsANewGroupOfWhoDiedBefore) {
  join_all();
  hub_.lose(1);
  sent_.clear();
  ASSERT_TRUE(hub_.take(0, {.type = MessageType::kGroup,
                            .group = 8,
                            .payload = encode(std::vector<uint32_t>{0, 1})})
                  .has_value());
  EXPECT_THAT(failure_of(0, 8), HasSubstr("rank 1 (node:101) is gone"));
}

TEST_F(HubTest, IsQuietWhenAMemberLeavesInOrder) {
  join_all();
  ASSERT_TRUE(hub_.take(1, {.type = MessageType::kLeave}).has_value());
  hub_.lose(1);
  EXPECT_TRUE(sent_.empty());
  EXPECT_TRUE(gather(1, "late").has_error());
  EXPECT_FALSE(hub_.empty());
}

TEST_F(HubTest, NeedsAnHeirWhenItsOwnProcessMayEnd) {
  join_all();
  EXPECT_FALSE(hub_.needs_heir());
  ASSERT_TRUE(hub_.take(0, {.type = MessageType::kLeave}).has_value());
  EXPECT_TRUE(sent_.empty());
  EXPECT_TRUE(hub_.needs_heir());
  EXPECT_EQ(hub_.present(), (std::vector<uint32_t>{1, 2}));
  hub_.say_goodbye();
  ASSERT_EQ(sent_.size(), 2U);
  EXPECT_EQ(sent_[0].message.type, MessageType::kLeave);
  hub_.lose(1);
  hub_.lose(2);
  EXPECT_FALSE(hub_.needs_heir()) << "nobody is left";
}

TEST_F(HubTest, SaysGoodbyeWhenItsOwnProcessMayEndWhileOthersMayStillCome) {
  ASSERT_TRUE(join(0).has_value());
  ASSERT_TRUE(join(1).has_value());
  ASSERT_TRUE(hub_.take(0, {.type = MessageType::kLeave}).has_value());
  EXPECT_FALSE(hub_.needs_heir());
  ASSERT_EQ(sent_.size(), 1U);
  EXPECT_EQ(sent_[0].to, 1U);
  EXPECT_EQ(sent_[0].message.type, MessageType::kLeave);
}

TEST_F(HubTest, PassesOnThatARankFailed) {
  join_all();
  ASSERT_TRUE(hub_.take(2, {.type = MessageType::kFail,
                            .group = kWorld,
                            .payload = encode(Error(fail(Code::kSystemError, "no memory")))})
                  .has_value());
  EXPECT_THAT(failure_of(0), HasSubstr("rank 2 (node:102) failed: no memory"));
  EXPECT_EQ(failure_of(2), "");
}

TEST_F(HubTest, PassesProbesOn) {
  join_all();
  ASSERT_TRUE(probe(0, 2).has_value());
  ASSERT_EQ(sent_.size(), 1U);
  EXPECT_EQ(sent_[0].to, 2U);
  EXPECT_EQ(sent_[0].message.type, MessageType::kProbe);
  EXPECT_EQ(sent_[0].message.peer, 0U) << "who asks";
  EXPECT_EQ(sent_[0].message.payload, "question");
}

TEST_F(HubTest, AnswersProbesForAMemberThatHasLeftTheGroup) {
  join_all();
  ASSERT_TRUE(open_group(0, 5, {0, 2}).has_value());
  ASSERT_TRUE(open_group(2, 5, {0, 2}).has_value());
  ASSERT_TRUE(leave_group(2, 5, "three calls").has_value());
  sent_.clear();
  ASSERT_TRUE(probe(0, 2, 5).has_value());
  ASSERT_EQ(sent_.size(), 1U);
  EXPECT_EQ(sent_[0].to, 0U);
  EXPECT_EQ(sent_[0].message.type, MessageType::kLeft);
  EXPECT_EQ(sent_[0].message.peer, 2U) << "of whom it is";
  EXPECT_EQ(sent_[0].message.payload, "three calls");
}

TEST_F(HubTest, KeepsNothingOfAGroupThatAllHaveLeft) {
  join_all();
  const size_t before = hub_.groups();
  for (uint64_t group = 100; group < 1000; ++group) {
    ASSERT_TRUE(open_group(0, group, {0, 2}).has_value());
    ASSERT_TRUE(open_group(2, group, {0, 2}).has_value());
    ASSERT_TRUE(leave_group(2, group).has_value());
    EXPECT_EQ(hub_.groups(), before + 1) << "a member is left";
    ASSERT_TRUE(leave_group(0, group).has_value());
    EXPECT_EQ(sent_.back().message.type, MessageType::kLeaveGroup) << "the group's last message";
    EXPECT_EQ(hub_.groups(), before);
  }
  ASSERT_TRUE(open_group(0, 5, {0, 2}).has_value());
  ASSERT_TRUE(leave_group(0, 5).has_value());
  hub_.lose(2);
  EXPECT_EQ(hub_.groups(), before) << "who is gone says nothing more";
}

TEST_F(HubTest, DeathOfAMemberDoesNotFailAGroupThatItHasLeft) {
  join_all();
  ASSERT_TRUE(open_group(0, 5, {0, 2}).has_value());
  ASSERT_TRUE(open_group(2, 5, {0, 2}).has_value());
  ASSERT_TRUE(leave_group(2, 5).has_value());
  hub_.lose(2);
  EXPECT_EQ(failure_of(0, 5), "");
  EXPECT_THAT(failure_of(0, kWorld), HasSubstr("rank 2"));
}

TEST_F(HubTest, FailsAGatherThatWaitsForAMemberThatHasLeft) {
  join_all();
  ASSERT_TRUE(leave_group(1, kWorld).has_value());
  ASSERT_TRUE(gather(0, "a").has_value());
  EXPECT_THAT(failure_of(0), AllOf(HasSubstr("rank 1"), HasSubstr("has destroyed"),
                                   HasSubstr("rank 0"), HasSubstr("split")));
}

TEST_F(HubTest, AGatherOfAMemberThatLeavesAfterwardsEnds) {
  join_all();
  ASSERT_TRUE(gather(1, "b").has_value());
  ASSERT_TRUE(leave_group(1, kWorld).has_value());
  ASSERT_TRUE(gather(0, "a").has_value());
  ASSERT_TRUE(gather(2, "c").has_value());
  EXPECT_EQ(failure_of(0), "");
  EXPECT_EQ(sent_.back().message.type, MessageType::kGathered);
}

TEST_F(HubTest, DropsMembersThatBreakTheRules) {
  join_all();
  EXPECT_TRUE(hub_.take(9, {.type = MessageType::kLeave}).has_error()) << "never joined";
  EXPECT_TRUE(hub_.take(0, {.type = MessageType::kGathered, .group = kWorld}).has_error());
  EXPECT_TRUE(hub_.take(0, {.type = MessageType::kJoin}).has_error());
  EXPECT_TRUE(gather(0, "x", 0, 12345).has_error()) << "no such group";
  EXPECT_TRUE(gather(0, std::string(kBlobBytesMax + 1, 'x')).has_error());
  EXPECT_TRUE(hub_.take(0, {.type = MessageType::kPost, .peer = 9, .group = kWorld}).has_error());
  EXPECT_TRUE(hub_.take(0, {.type = MessageType::kProbe, .peer = 9, .group = kWorld}).has_error());
  const auto group = [&](std::vector<uint32_t> ranks) {
    return hub_.take(0, {.type = MessageType::kGroup, .group = 5, .payload = encode(ranks)});
  };
  EXPECT_TRUE(group({}).has_error());
  EXPECT_TRUE(group({1, 2}).has_error()) << "without itself";
  EXPECT_TRUE(group({0, 3}).has_error()) << "a rank that is not there";
  EXPECT_TRUE(group({0, 0}).has_error());
  EXPECT_TRUE(sent_.empty()) << "no harm to the others";
}

TEST_F(HubTest, BoundsWhatAMemberCanPileUp) {
  join_all();
  bool refused = false;
  for (uint64_t number = 0; number < 1000 && !refused; ++number) {
    refused = gather(0, "x", number).has_error();
  }
  EXPECT_TRUE(refused);
}

}  // namespace
}  // namespace plexus
