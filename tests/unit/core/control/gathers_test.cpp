// SPDX-License-Identifier: Apache-2.0
// One agent's part in a gather, as the root of three processes and as a process below it: what goes
// up, what comes down, what is refused, and who is named when somebody is missing.
#include "core/control/gathers.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kWorld = 9;
constexpr uint64_t kNumber = 3;

/// Processes 0, 1 and 2 of one host, each with the rank of its number; 0 is the root.
class GathersTest : public testing::Test {
 protected:
  explicit GathersTest(uint32_t self = 0) {
    std::vector<ProcessEntry> entries;
    for (uint32_t process : {0U, 1U, 2U}) {
      entries.push_back({.process = process + 1,
                         .host_key = 1,
                         .pid = static_cast<int32_t>(100 + process),
                         .host = "node",
                         .ranks = {process}});
    }
    state_.map = std::make_shared<const FamilyMap>(ProcessTable::make(std::move(entries)).value());
    state_.self = self;
    state_.ranks = {self};
    state_.make_group(kWorld, state_.map->all);
    group().opened = {self};
  }
  AgentGroup& group() { return *state_.find(kWorld); }
  Result<void> contribute(uint32_t rank, const std::string& blob) {
    return gathers_.take_contribution(
        rank, {.type = MessageType::kGather, .group = kWorld, .tag = kNumber, .payload = blob});
  }
  /// The contributions of `ranks`, in one message from `process`.
  Result<void> contribute_from(uint32_t process, const std::vector<uint32_t>& ranks) {
    Contributions contributions;
    for (const uint32_t rank : ranks) {
      contributions.add(rank, "blob " + std::to_string(rank));
    }
    return gathers_.take_contributions(group(), process,
                                       {.type = MessageType::kGather,
                                        .to = state_.map->all->fingerprint,
                                        .group = kWorld,
                                        .tag = kNumber,
                                        .payload = contributions.encode()});
  }
  void inquire(Code code) {
    gathers_.inquire(0, group(),
                     {.type = MessageType::kOverdue,
                      .group = kWorld,
                      .tag = kNumber,
                      .payload = encode(Error(code, "init waits", "file", 1))});
  }
  /// From the process below or above.
  void take_missing(const std::vector<MissingRank>& missing) {
    ASSERT_TRUE(gathers_
                    .take_missing(group(), {.type = MessageType::kMissing,
                                            .group = kWorld,
                                            .tag = kNumber,
                                            .payload = encode(missing)})
                    .has_value());
  }
  /// To whom messages of this type went.
  std::vector<uint32_t> receivers(MessageType type) const {
    std::vector<uint32_t> processes;
    for (const auto& [process, message] : sent_) {
      if (message.type == type) {
        processes.push_back(process);
      }
    }
    return processes;
  }

  std::vector<std::pair<uint32_t, Message>> sent_;       // to processes
  std::vector<std::pair<uint32_t, Message>> delivered_;  // to ranks
  std::vector<std::string> failures_;
  AgentState state_{
      .world = kWorld,
      .out = {
          .send = [this](uint32_t to, const Message& message) { sent_.emplace_back(to, message); },
          .deliver = [this](uint32_t rank,
                            const Message& message) { delivered_.emplace_back(rank, message); },
          .to_introducer = [](const Message&) {},
          .announce_leave = [](const Message&) {}}};
  FailGroup fail_ = [this](uint64_t /*id*/, uint32_t /*rank*/, const Error& error) {
    failures_.push_back(error.message());
  };
  Leaving leaving_{state_, fail_};
  Gathers gathers_{state_, leaving_, fail_};
};

TEST_F(GathersTest, TheRootGivesTheResultToAllWhenTheLastHasContributed) {
  ASSERT_TRUE(contribute(0, "blob 0").has_value());
  ASSERT_TRUE(contribute_from(2, {2}).has_value());
  EXPECT_TRUE(sent_.empty()) << "process 1 has not contributed";
  ASSERT_TRUE(contribute_from(1, {1}).has_value());
  EXPECT_THAT(receivers(MessageType::kGathered), ElementsAre(1, 2));
  ASSERT_EQ(delivered_.size(), 1U);
  EXPECT_EQ(delivered_[0].first, 0U);
  const auto result = Gathered::decode(delivered_[0].second.payload);
  ASSERT_TRUE(result.has_value() && result.value().size() == 3);
  for (size_t rank : {0U, 1U, 2U}) {
    EXPECT_EQ(result.value()[rank], "blob " + std::to_string(rank));
  }
  EXPECT_TRUE(group().gathers.empty());
}

TEST_F(GathersTest, RefusesContributionsThatAreNotTheSendersOwn) {
  EXPECT_TRUE(contribute(1, "of another process").has_error());
  ASSERT_TRUE(contribute(0, "first").has_value());
  EXPECT_TRUE(contribute(0, "second").has_error());
  EXPECT_TRUE(contribute(0, std::string(kBlobBytesMax + 1, 'x')).has_error());
  EXPECT_TRUE(contribute_from(1, {0}).has_error()) << "the root's own rank";
  EXPECT_TRUE(contribute_from(2, {}).has_error());
  EXPECT_TRUE(sent_.empty() && delivered_.empty());
}

TEST_F(GathersTest, AProcessContributesOnce) {
  ASSERT_TRUE(contribute_from(1, {1}).has_value());
  EXPECT_TRUE(contribute_from(1, {1}).has_error());
}

TEST_F(GathersTest, AnotherListOfMembersFailsTheGroup) {
  ASSERT_TRUE(gathers_
                  .take_contributions(group(), 1,
                                      {.type = MessageType::kGather,
                                       .to = state_.map->all->fingerprint + 1,
                                       .group = kWorld,
                                       .tag = kNumber})
                  .has_value());
  ASSERT_EQ(failures_.size(), 1U);
  EXPECT_THAT(failures_[0], HasSubstr("rank 1 (node:101) and rank 0 (node:100) disagree"));
}

TEST_F(GathersTest, TheRootNamesWhoHasNotContributed) {
  ASSERT_TRUE(contribute(0, "").has_value());
  ASSERT_TRUE(contribute_from(1, {1}).has_value());
  inquire(Code::kTimeout);
  EXPECT_THAT(receivers(MessageType::kMissingQuery), ElementsAre(2));
  take_missing({{.rank = 2, .why = "it sleeps"}});
  gathers_.conclude(kWorld, group());
  ASSERT_EQ(failures_.size(), 1U);
  EXPECT_EQ(failures_[0], "still waiting for rank 2 (node:102) [it sleeps]: init waits");
}

TEST_F(GathersTest, AProcessThatDoesNotAnswerIsNamed) {
  ASSERT_TRUE(contribute(0, "").has_value());
  ASSERT_TRUE(contribute_from(2, {2}).has_value());
  inquire(Code::kTimeout);
  gathers_.conclude(kWorld, group());
  ASSERT_EQ(failures_.size(), 1U);
  EXPECT_THAT(failures_[0], HasSubstr("rank 1 (node:101), whose process does not answer"));
}

TEST_F(GathersTest, WhileItGoesOnTheAskerIsToldOnceAndTheOthersEachTime) {
  ASSERT_TRUE(contribute(0, "").has_value());
  for (const bool is_first : {true, false}) {
    sent_.clear();
    inquire(Code::kInProgress);
    gathers_.conclude(kWorld, group());
    EXPECT_TRUE(failures_.empty());
    EXPECT_THAT(receivers(MessageType::kLate), ElementsAre(1, 2));
    EXPECT_EQ(sent_.back().second.from, is_first ? 0U : kNobody);
  }
}

class GathersBelowTest : public GathersTest {
 protected:
  GathersBelowTest() : GathersTest(1) {}
};

TEST_F(GathersBelowTest, SendsUpAndPassesTheResultOnFromItsParentAlone) {
  ASSERT_TRUE(contribute(1, "blob 1").has_value());
  ASSERT_THAT(receivers(MessageType::kGather), ElementsAre(0));
  EXPECT_EQ(sent_[0].second.to, state_.map->all->fingerprint);
  const Message result{.type = MessageType::kGathered, .group = kWorld, .tag = kNumber};
  EXPECT_TRUE(gathers_.take_gathered(group(), 2, result).has_error());
  EXPECT_TRUE(delivered_.empty());
  ASSERT_TRUE(gathers_.take_gathered(group(), 0, result).has_value());
  ASSERT_EQ(delivered_.size(), 1U);
  EXPECT_EQ(delivered_[0].first, 1U);
}

TEST_F(GathersBelowTest, AsksTheRootForWhoIsMissing) {
  ASSERT_TRUE(contribute(1, "blob 1").has_value());
  inquire(Code::kTimeout);
  EXPECT_THAT(receivers(MessageType::kOverdue), ElementsAre(0));
  EXPECT_TRUE(receivers(MessageType::kMissingQuery).empty());
}

TEST_F(GathersBelowTest, AnswersWhoIsMissingToItsParentAlone) {
  const Message question{.type = MessageType::kMissingQuery, .group = kWorld, .tag = kNumber};
  gathers_.take_missing_query(0, question);
  ASSERT_THAT(receivers(MessageType::kMissing), ElementsAre(0));
  EXPECT_EQ(decode_missing(sent_[0].second.payload).value().at(0).rank, 1U);
  EXPECT_TRUE(group().gathers.empty()) << "the question makes none";
  ASSERT_TRUE(contribute(1, "blob 1").has_value());
  sent_.clear();
  gathers_.take_missing_query(0, question);
  EXPECT_TRUE(sent_.empty()) << "nobody is missing";
  gathers_.take_missing_query(2, question);
  ASSERT_EQ(failures_.size(), 1U);
  EXPECT_THAT(failures_[0], HasSubstr("rank 2 (node:102) and rank 1 (node:101) disagree"));
  gathers_.take_missing_query(0, {.type = MessageType::kMissingQuery, .group = 77, .tag = 5});
  ASSERT_THAT(receivers(MessageType::kMissing), ElementsAre(0));
  EXPECT_EQ(sent_[0].second.group, 77U);
  EXPECT_EQ(sent_[0].second.tag, 5U);
  EXPECT_EQ(decode_missing(sent_[0].second.payload).value().at(0).rank, 1U);
}

TEST_F(GathersBelowTest, PassesOnWhoIsMissingIfItIsOfTheGroup) {
  take_missing({{.rank = 3, .why = ""}});
  EXPECT_TRUE(sent_.empty());
  take_missing({{.rank = 3, .why = ""}, {.rank = 2, .why = "late"}});
  ASSERT_THAT(receivers(MessageType::kMissing), ElementsAre(0));
  const auto passed = decode_missing(sent_[0].second.payload).value();
  ASSERT_EQ(passed.size(), 1U);
  EXPECT_EQ(passed[0].rank, 2U);
  EXPECT_EQ(passed[0].why, "late");
  sent_.clear();
  take_missing(std::vector<MissingRank>(17, {.rank = 2, .why = ""}));
  EXPECT_EQ(decode_missing(sent_[0].second.payload).value().size(), 16U);
}

TEST_F(GathersBelowTest, AResultBeforeItsOwnContributionIsIgnored) {
  const Message result{.type = MessageType::kGathered, .group = kWorld, .tag = kNumber};
  ASSERT_TRUE(gathers_.take_gathered(group(), 0, result).has_value());
  EXPECT_TRUE(delivered_.empty());
  ASSERT_TRUE(contribute(1, "blob 1").has_value());
  group().failure = fail(Code::kRemoteError, "it failed");
  ASSERT_TRUE(gathers_.take_gathered(group(), 0, result).has_value());
  EXPECT_TRUE(delivered_.empty());
}

TEST_F(GathersBelowTest, AParentThatIsGoneIsSuspectAndSentNothing) {
  state_.gone[0] = state_.now;
  ASSERT_TRUE(contribute(1, "blob 1").has_value());
  EXPECT_TRUE(sent_.empty());
  ASSERT_TRUE(group().suspect.has_value());
  EXPECT_EQ(group().suspect->first, 0U);
}

TEST_F(GathersTest, TakesAMebibyteOfARankOfAGroupThatItIsIn) {
  EXPECT_TRUE(contribute(0, std::string(size_t{1} << 20, 'x')).has_value());
  EXPECT_EQ(group().done[0], kNumber + 1);
  EXPECT_TRUE(
      gathers_.take_contribution(0, {.type = MessageType::kGather, .group = 77}).has_error());
}

TEST_F(GathersTest, OfAFailedGroupNothingIsKept) {
  group().failure = fail(Code::kRemoteError, "it failed");
  EXPECT_TRUE(contribute(0, "").has_value());
  EXPECT_TRUE(contribute_from(1, {1}).has_value());
  EXPECT_TRUE(group().gathers.empty() && sent_.empty() && failures_.empty());
  EXPECT_EQ(group().done[0], kNumber + 1);
}

TEST_F(GathersTest, TheNumberOfGathersIsBounded) {
  Contributions of_one;
  of_one.add(1, "");
  const auto from_one = [&](uint64_t number) {
    return gathers_.take_contributions(group(), 1,
                                       {.type = MessageType::kGather,
                                        .to = state_.map->all->fingerprint,
                                        .group = kWorld,
                                        .tag = number,
                                        .payload = of_one.encode()});
  };
  for (uint64_t number = 0; number <= 64; ++number) {
    ASSERT_TRUE(from_one(number).has_value()) << number;
  }
  EXPECT_TRUE(from_one(65).has_error());
  EXPECT_TRUE(
      gathers_.take_contribution(0, {.type = MessageType::kGather, .group = kWorld, .tag = 65})
          .has_error());
}

TEST_F(GathersTest, ADamagedContributionLeavesNothingBehind) {
  const auto damaged = [&] {
    return gathers_
        .take_contributions(group(), 1,
                            {.type = MessageType::kGather,
                             .to = state_.map->all->fingerprint,
                             .group = kWorld,
                             .tag = kNumber,
                             .payload = "x"})
        .has_error();
  };
  EXPECT_TRUE(damaged());
  EXPECT_TRUE(group().gathers.empty());
  ASSERT_TRUE(contribute(0, "blob 0").has_value());
  EXPECT_TRUE(damaged());
  EXPECT_EQ(group().gathers.size(), 1U) << "rank 0 has contributed";
}

TEST_F(GathersTest, ProcessesThatAreNotBelowTakeNoPart) {
  ASSERT_TRUE(contribute_from(0, {1}).has_value());
  EXPECT_EQ(failures_.size(), 1U);
  EXPECT_TRUE(contribute_from(1, {1, 3}).has_error()) << "there is no rank 3";
}

TEST_F(GathersTest, TheTableIsDroppedWhenTheFirstGatherOfAllHasEnded) {
  state_.table = "the table";
  ASSERT_TRUE(contribute(0, "").has_value());
  ASSERT_TRUE(contribute_from(1, {1}).has_value());
  EXPECT_EQ(state_.table, "the table");
  ASSERT_TRUE(contribute_from(2, {2}).has_value());
  EXPECT_EQ(state_.table, "");
}

TEST_F(GathersTest, OneInquiryGoesOnUntilAnErrorTakesItsPlace) {
  inquire(Code::kTimeout);
  EXPECT_FALSE(group().inquiry.has_value()) << "there is no such gather";
  ASSERT_TRUE(contribute(0, "").has_value());
  const auto queries = [&] {
    const size_t count = receivers(MessageType::kMissingQuery).size();
    sent_.clear();
    return count;
  };
  inquire(Code::kInProgress);
  EXPECT_EQ(queries(), 2U);
  EXPECT_EQ(group().inquiry->until - state_.now, std::chrono::seconds(1));
  EXPECT_EQ(group().inquiry->asker, 0U);
  inquire(Code::kInProgress);
  EXPECT_EQ(queries(), 0U);
  inquire(Code::kTimeout);
  EXPECT_EQ(queries(), 2U);
  inquire(Code::kTimeout);
  inquire(Code::kInProgress);
  EXPECT_EQ(queries(), 0U);
  group().inquiry.reset();
  group().failure = fail(Code::kRemoteError, "it failed");
  inquire(Code::kTimeout);
  EXPECT_EQ(queries(), 0U);
}

TEST_F(GathersTest, AnInquiryIsDroppedWithItsGatherOrGroup) {
  ASSERT_TRUE(contribute(0, "").has_value());
  for (const bool fails : {false, true}) {
    inquire(Code::kTimeout);
    ASSERT_TRUE(group().inquiry.has_value());
    if (fails) {
      group().failure = fail(Code::kRemoteError, "it failed");
    } else {
      group().inquiry->gather = 77;
    }
    gathers_.conclude(kWorld, group());
    EXPECT_FALSE(group().inquiry.has_value());
    EXPECT_TRUE(failures_.empty());
  }
}

TEST_F(GathersTest, ASentenceNamesSixteenRanks) {
  ASSERT_TRUE(contribute(0, "").has_value());
  inquire(Code::kTimeout);
  const std::string two =
      encode(std::vector<MissingRank>{{.rank = 1, .why = ""}, {.rank = 2, .why = "it sleeps"}});
  const Message missing{
      .type = MessageType::kMissing, .group = kWorld, .tag = kNumber, .payload = two};
  ASSERT_TRUE(gathers_.take_missing(group(), missing).has_value());
  EXPECT_EQ(group().inquiry->missing.size(), 2U);
  for (int more = 0; more < 10; ++more) {
    ASSERT_TRUE(gathers_.take_missing(group(), missing).has_value());
  }
  EXPECT_EQ(group().inquiry->missing.size(), 16U);
  group().inquiry->missing.resize(2);
  gathers_.conclude(kWorld, group());
  EXPECT_THAT(failures_, ElementsAre("still waiting for rank 1 (node:101), rank 2 (node:102) [it "
                                     "sleeps]: init waits"));
}

TEST_F(GathersTest, WhoIsLateIsToldByTheAskerElseByARankThatIsThere) {
  ASSERT_TRUE(contribute(0, "").has_value());
  inquire(Code::kInProgress);
  state_.gone[1] = state_.now;
  gathers_.conclude(kWorld, group());
  EXPECT_THAT(receivers(MessageType::kLate), ElementsAre(2)) << "process 1 is gone";
  ASSERT_EQ(delivered_.size(), 1U);
  EXPECT_EQ(delivered_[0].second.from, 0U);
  EXPECT_THAT(
      delivered_[0].second.payload,
      HasSubstr("still waiting for rank 1 (node:101), whose process does not answer: init"));
  gathers_.tell_late(group(), {.type = MessageType::kLate, .from = 2});
  ASSERT_EQ(delivered_.size(), 2U);
  EXPECT_EQ(delivered_[1].first, 0U) << "it is not of this process";
  group().left[0] = {};
  gathers_.tell_late(group(), {.type = MessageType::kLate, .from = 0});
  EXPECT_EQ(delivered_.size(), 2U) << "it has left";
}

}  // namespace
}  // namespace plexus
