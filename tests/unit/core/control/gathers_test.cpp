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
  const std::vector<MissingRank> missing = {{.rank = 2, .why = "it sleeps"}};
  ASSERT_TRUE(gathers_
                  .take_missing(group(), {.type = MessageType::kMissing,
                                          .group = kWorld,
                                          .tag = kNumber,
                                          .payload = encode(missing)})
                  .has_value());
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

}  // namespace
}  // namespace plexus
