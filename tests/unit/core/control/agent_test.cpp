// SPDX-License-Identifier: Apache-2.0
// Single rules of agents; agent_simulation_test.cpp has the runs with random deaths.
#include "core/control/agent.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/control/simulation.hpp"

namespace plexus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kWorld = Simulation::kWorld;
constexpr uint64_t kSecondUs = 1'000'000;

class AgentTest : public ::testing::Test {
 protected:
  struct Delivered {
    uint32_t rank;
    Message message;
  };

  void start(const SimulatedJob& job) {
    simulation_ = std::make_unique<Simulation>(job, [this](uint32_t rank, const Message& message) {
      delivered_.push_back({rank, message});
    });
    simulation_->start();
    run();
  }
  void run(uint64_t time_us = kSecondUs / 10) {
    simulation_->run(simulation_->now_us() + time_us, [] { return false; });
  }
  void say(uint32_t rank, const Message& message) {
    const auto taken = simulation_->agent_of(rank).take(rank, message);
    EXPECT_TRUE(taken.has_value()) << taken.error().message();
  }
  void gather(uint32_t rank, uint64_t group = kWorld, uint64_t number = 0) {
    say(rank, {.type = MessageType::kGather,
               .group = group,
               .tag = number,
               .payload = std::to_string(rank)});
  }
  void open_group(uint32_t rank, uint64_t group, const std::vector<uint32_t>& ranks) {
    say(rank, {.type = MessageType::kGroup, .group = group, .payload = encode(ranks)});
  }
  [[nodiscard]] std::string failure_of(uint32_t rank, uint64_t group = kWorld) const {
    for (const Delivered& one : delivered_) {
      if (one.rank == rank && one.message.type == MessageType::kFail &&
          one.message.group == group) {
        return decode_error(one.message.payload).message();
      }
    }
    return "";
  }
  [[nodiscard]] int count(uint32_t rank, MessageType type) const {
    return static_cast<int>(std::count_if(
        delivered_.begin(), delivered_.end(),
        [&](const Delivered& one) { return one.rank == rank && one.message.type == type; }));
  }

  /// kLate came to one of the two ranks of each process: to `asker` in its process, else to the
  /// first.
  void expect_one_is_late_in_each_process(uint32_t asker) const {
    for (uint32_t rank = 0; rank < 80; ++rank) {
      const bool is_first = rank % 2 == 0 && rank + 1 != asker;
      EXPECT_EQ(count(rank, MessageType::kLate), is_first || rank == asker ? 1 : 0) << rank;
    }
    for (const Delivered& one : delivered_) {
      if (one.message.type == MessageType::kLate) {
        EXPECT_EQ(one.message.from, asker);
      }
    }
  }

  std::unique_ptr<Simulation> simulation_;
  std::vector<Delivered> delivered_;
};

/// All have joined, and nobody passes on the table.
class AgentWithoutTable : public ::testing::Test {
 protected:
  AgentWithoutTable() {
    EXPECT_TRUE(agent_
                    .join({.rank = 0,
                           .nranks = 2,
                           .version = 1,
                           .process = {.process = 7, .pid = 100, .host = "n"}})
                    .has_value());
    agent_.take_from_introducer({.type = MessageType::kJoined, .group = kWorld, .tag = 8});
    asked_.clear();
  }
  void wait(std::chrono::seconds time) {
    for (const auto end = now_ + time; now_ < end; now_ += std::chrono::milliseconds(100)) {
      agent_.tick(now_);
    }
  }

  std::vector<Message> asked_;
  std::vector<Error> failures_;
  Clock::time_point now_ = Clock::now();
  Agent agent_{kWorld,
               7,
               {.send = [](uint32_t, const Message&) {},
                .deliver =
                    [this](uint32_t, const Message& message) {
                      failures_.push_back(decode_error(message.payload));
                    },
                .to_introducer = [this](const Message& message) { asked_.push_back(message); },
                .announce_leave = [](const Message&) {}}};
};

TEST_F(AgentWithoutTable, AsksTheIntroducer) {
  wait(std::chrono::seconds(4));
  EXPECT_TRUE(asked_.empty());
  wait(std::chrono::seconds(2));
  ASSERT_EQ(asked_.size(), 1U);
  EXPECT_EQ(asked_[0].type, MessageType::kTable);
  EXPECT_EQ(asked_[0].tag, 7U);
  EXPECT_TRUE(failures_.empty());
}

TEST_F(AgentWithoutTable, GivesUpWhenTheIntroducerIsGoneToo) {
  wait(std::chrono::seconds(4));
  agent_.lose_introducer("1.2.3.4:5");
  wait(std::chrono::seconds(9));
  EXPECT_TRUE(failures_.empty()) << "others may have it";
  wait(std::chrono::seconds(2));
  ASSERT_EQ(failures_.size(), 1U);
  EXPECT_EQ(failures_[0].code(), Code::kRemoteError);
  EXPECT_THAT(failures_[0].message(), HasSubstr("(1.2.3.4:5)"));
}

TEST(AgentWithoutIntroducer, RefusesRanksThatComeWhenItIsGone) {
  std::vector<Message> reported;
  Agent agent(kWorld, 7,
              {.send = [](uint32_t, const Message&) {},
               .deliver = [](uint32_t, const Message&) {},
               .to_introducer = [&](const Message& message) { reported.push_back(message); },
               .announce_leave = [](const Message&) {}});
  agent.lose_introducer("1.2.3.4:5");
  const auto joined = agent.join({.rank = 0, .nranks = 2, .version = 1});
  ASSERT_TRUE(joined.has_error()) << "it would wait for others that never hear of it";
  EXPECT_EQ(joined.error().code(), Code::kRemoteError);
  EXPECT_THAT(joined.error().message(), HasSubstr("(1.2.3.4:5)"));
  EXPECT_TRUE(reported.empty());
}

TEST_F(AgentTest, SaysWhoIsMissingWhenAGatherTakesTooLong) {
  start({.processes = 40, .ranks_per_process = 2, .processes_per_host = 4});
  for (uint32_t rank = 0; rank < 80; ++rank) {
    if (rank != 33 && rank != 70) {
      gather(rank);
    }
  }
  run();
  const Error late = fail(Code::kTimeout, "not all ranks made this call within 3 s");
  say(5, {.type = MessageType::kFail, .group = kWorld, .tag = 0, .payload = encode(late)});
  run(3 * kSecondUs);
  for (uint32_t rank = 0; rank < 80; ++rank) {
    EXPECT_THAT(failure_of(rank),
                AllOf(HasSubstr("still waiting for"), HasSubstr("rank 33 (node:16)"),
                      HasSubstr("rank 70 (node:35)"), HasSubstr("within 3 s")));
  }
}

TEST_F(AgentTest, TellsOneRankOfEachProcessWhoIsLate) {
  start({.processes = 40, .ranks_per_process = 2, .processes_per_host = 4});
  simulation_->explain = [](uint32_t process) {
    return process == 35 ? std::string("is busy") : std::string();
  };
  for (uint32_t rank = 0; rank < 80; ++rank) {
    if (rank != 33 && rank != 70) {
      gather(rank);
    }
  }
  run();
  const Error late = fail(Code::kInProgress, "others wait");
  for (const uint32_t rank : {5U, 6U, 79U}) {
    say(rank, {.type = MessageType::kFail, .group = kWorld, .tag = 0, .payload = encode(late)});
  }
  run(3 * kSecondUs);
  for (uint32_t rank = 0; rank < 80; ++rank) {
    EXPECT_EQ(failure_of(rank), "");
  }
  expect_one_is_late_in_each_process(5);
  const auto reported =
      std::find_if(delivered_.begin(), delivered_.end(),
                   [](const Delivered& one) { return one.message.type == MessageType::kLate; });
  EXPECT_EQ(reported->message.payload,
            "still waiting for rank 33 (node:16), rank 70 (node:35) [is busy]: others wait");
  // For the same ranks nobody says it again; once one of them has come it is another cause.
  delivered_.clear();
  say(6, {.type = MessageType::kFail, .group = kWorld, .tag = 0, .payload = encode(late)});
  run(3 * kSecondUs);
  expect_one_is_late_in_each_process(kNobody);
  delivered_.clear();
  gather(33);
  run();
  say(79, {.type = MessageType::kFail, .group = kWorld, .tag = 0, .payload = encode(late)});
  run(3 * kSecondUs);
  expect_one_is_late_in_each_process(79);
  // Who waits too long is told so also while the others are asked.
  say(5, {.type = MessageType::kFail, .group = kWorld, .tag = 0, .payload = encode(late)});
  gather(70);
  run(3 * kSecondUs);
  for (uint32_t rank = 0; rank < 80; ++rank) {
    EXPECT_EQ(count(rank, MessageType::kGathered), 1) << rank;
  }
  expect_one_is_late_in_each_process(79);  // it is over
}

// The records of two ranks are compared where they meet, those of all where all are, and no more
// once a difference was told, also not by those who get the notes afterwards.
TEST_F(AgentTest, HasRecordsComparedOfRanksThatLeave) {
  for (const size_t enough : {2U, 4U}) {
    delivered_.clear();
    start({.processes = 4, .processes_per_host = 1});
    std::vector<std::map<int, std::string>> compared;
    simulation_->compare = [&](uint32_t /*process*/, uint64_t group, size_t nranks,
                               const AgentHooks::Records& records) {
      EXPECT_EQ(group, 9U);
      EXPECT_EQ(nranks, 4U);
      compared.emplace_back(records.begin(), records.end());
      return records.size() >= enough;
    };
    const std::vector<uint32_t> members = {3, 1, 0, 2};
    for (uint32_t rank = 0; rank < 4; ++rank) {
      open_group(rank, 9, members);
    }
    for (uint32_t rank = 0; rank < 4; ++rank) {
      say(rank,
          {.type = MessageType::kLeaveGroup, .group = 9, .payload = "of " + std::to_string(rank)});
      run();
    }
    ASSERT_FALSE(compared.empty());
    EXPECT_EQ(compared.back().size(), enough);
    EXPECT_EQ(compared.size(), enough == 2 ? 1U : 3U) << "of two, of two others, of all";
    for (const auto& [rank, record] : compared.back()) {
      EXPECT_EQ(record, "of " + std::to_string(members[static_cast<size_t>(rank)]));
    }
  }
}

TEST_F(AgentTest, NamesRanksThatDidNotEvenOpenTheGroup) {
  start({.processes = 6, .processes_per_host = 2});
  open_group(0, 9, {0, 2, 5});
  open_group(5, 9, {0, 2, 5});
  gather(0, 9);
  gather(5, 9);
  run();
  const Error late = fail(Code::kTimeout, "late");
  say(5, {.type = MessageType::kFail, .group = 9, .tag = 0, .payload = encode(late)});
  run(3 * kSecondUs);
  EXPECT_EQ(failure_of(0, 9), "still waiting for rank 2 (node:2): late");
  EXPECT_EQ(failure_of(2, 9), "");
  open_group(2, 9, {0, 2, 5});
  EXPECT_EQ(failure_of(2, 9), "still waiting for rank 2 (node:2): late");
}

TEST_F(AgentTest, FailsAGroupOfWhichTheRanksDisagree) {
  start({.processes = 4, .processes_per_host = 1});
  open_group(0, 9, {0, 1});
  open_group(1, 9, {1, 0});
  gather(0, 9);
  gather(1, 9);
  run();
  EXPECT_THAT(failure_of(0, 9), HasSubstr("disagree on who is in a new communicator"));
  EXPECT_EQ(failure_of(0, 9), failure_of(1, 9));
  // Neither is in the other's group's tree where it thinks.
  open_group(2, 11, {2, 3});
  open_group(3, 11, {1, 3});
  gather(2, 11);
  gather(3, 11);
  run();
  const Error late = fail(Code::kTimeout, "late");
  say(2, {.type = MessageType::kFail, .group = 11, .tag = 0, .payload = encode(late)});
  run(3 * kSecondUs);
  EXPECT_THAT(failure_of(2, 11), HasSubstr("disagree on who is in a new communicator"));
  EXPECT_EQ(failure_of(2, 11), failure_of(3, 11));
  EXPECT_EQ(simulation_->errors, std::vector<std::string>());
}

TEST_F(AgentTest, FailsAGatherThatARankHasLeftWithoutIt) {
  start({.processes = 3, .processes_per_host = 1});
  gather(0);
  say(2, {.type = MessageType::kLeaveGroup, .group = kWorld});
  gather(1);
  run();
  for (const uint32_t rank : {0U, 1U}) {
    EXPECT_THAT(failure_of(rank),
                HasSubstr("rank 2 (node:2) has destroyed a communicator in which"));
  }
  EXPECT_EQ(failure_of(2), "") << "it has left";
}

TEST_F(AgentTest, ARankThatWasAskedForMayLeaveInPlaceOfComing) {
  start({.processes = 3, .processes_per_host = 1});
  gather(0);
  gather(1);
  run();
  const Error late = fail(Code::kInProgress, "others have waited for 1 s");
  say(0, {.type = MessageType::kFail, .group = kWorld, .tag = 0, .payload = encode(late)});
  run(2 * kSecondUs);
  EXPECT_EQ(count(2, MessageType::kLate), 1) << "its process was asked";
  say(2, {.type = MessageType::kLeaveGroup, .group = kWorld});
  run();
  for (const uint32_t rank : {0U, 1U}) {
    EXPECT_THAT(failure_of(rank),
                HasSubstr("rank 2 (node:2) has destroyed a communicator in which"));
  }
}

TEST_F(AgentTest, TellsTheOthersOfAFailureOnce) {
  start({.processes = 5, .ranks_per_process = 2, .processes_per_host = 2});
  const Error error = fail(Code::kSystemError, "out of memory");
  say(3, {.type = MessageType::kFail, .group = kWorld, .tag = 5, .payload = encode(error)});
  run();
  say(7, {.type = MessageType::kFail, .group = kWorld, .tag = 5, .payload = encode(error)});
  run();
  for (uint32_t rank = 0; rank < 10; ++rank) {
    EXPECT_EQ(count(rank, MessageType::kFail), rank == 3 ? 0 : 1) << rank;
  }
  EXPECT_THAT(failure_of(9), HasSubstr("rank 3 (node:1) failed: out of memory"));
}

TEST_F(AgentTest, NamesWhoseUsageIsWrongIfTheErrorDoesNot) {
  for (const auto* const text : {"net plugin 'x' cannot be used", "rank 1 and rank 3 differ"}) {
    delivered_.clear();
    start({.processes = 2, .ranks_per_process = 2, .processes_per_host = 1});
    const Error error = fail(Code::kInvalidUsage, "{}", text);
    say(3, {.type = MessageType::kFail, .group = kWorld, .tag = 5, .payload = encode(error)});
    run();
    EXPECT_EQ(failure_of(0), std::string(text[0] == 'n' ? "rank 3 (node:1) failed: " : "") + text);
  }
}

TEST_F(AgentTest, AProcessTakenForDeadKeepsItsGroupsUntilItsRanksLeave) {
  start({.processes = 2, .ranks_per_process = 2, .processes_per_host = 1});
  Agent& agent = simulation_->agent_of(0);
  // Their connection was reset, and each takes the other for dead.
  const FailureNotice notice{.kind = FailureNotice::Kind::kDeath,
                             .subject = 0,
                             .group = 0,
                             .text = "died or lost its connection to rank 2 (node:1)"};
  ASSERT_TRUE(agent
                  .take_from(1, {.type = MessageType::kFailureNotice,
                                 .group = kWorld,
                                 .payload = encode(std::vector{notice})})
                  .has_value());
  agent.lose(1, Agent::Loss::kBroken, "reset");
  EXPECT_THAT(failure_of(0), AllOf(HasSubstr("the others took this process for dead: rank 0"),
                                   HasSubstr("lost its connection to rank 2")));
  gather(0);  // no error: the failure was told
  say(1, {.type = MessageType::kLeaveGroup, .group = kWorld});
  gather(0, kWorld, 1);
  EXPECT_EQ(agent.groups(), 1U);
  say(0, {.type = MessageType::kLeaveGroup, .group = kWorld});
  EXPECT_EQ(agent.groups(), 0U);
}

TEST_F(AgentTest, KnowsWhoIsGone) {
  start({.processes = 6, .ranks_per_process = 1, .processes_per_host = 1});
  constexpr uint64_t kGroup = 77;
  const std::vector<uint32_t> members = {4, 3, 2, 1, 0};
  for (const uint32_t rank : members) {
    open_group(rank, kGroup, members);
  }
  run();
  EXPECT_TRUE(simulation_->agent_of(1).gone_ranks(kGroup).empty());
  simulation_->kill(0);
  simulation_->kill(3);  // whose only neighbour is 0
  run();
  for (const uint32_t rank : {1U, 2U, 4U}) {
    EXPECT_EQ(simulation_->agent_of(rank).gone_ranks(kGroup), std::vector<uint32_t>{0});
    open_group(rank, kGroup + 1, {1, 2, 3, 4});
    gather(rank, kGroup + 1);
  }
  run(6 * kSecondUs);
  for (const uint32_t rank : {1U, 2U, 4U}) {
    EXPECT_THAT(failure_of(rank, kGroup + 1), HasSubstr("rank 3 (node:3) has left or died"));
    EXPECT_EQ(simulation_->agent_of(rank).gone_ranks(kGroup), (std::vector<uint32_t>{3, 0}));
  }
  EXPECT_TRUE(simulation_->agent_of(1).gone_ranks(kGroup + 2).empty()) << "no such group";
  EXPECT_TRUE(failure_of(5).find("has left") == std::string::npos) << "only its group fails";
}

/// Two processes that connect to each other at once have two connections, and a leave message comes
/// on both: on one of them before what the other still carries.
TEST_F(AgentTest, WhatWasUnderWayIsTakenAfterTheLeaveMessageOfItsSender) {
  start({.processes = 2, .ranks_per_process = 1, .processes_per_host = 1});
  gather(1);
  run();
  Agent& agent = simulation_->agent_of(1);
  const Message leave = {.type = MessageType::kLeave,
                         .group = kWorld,
                         .payload = encode(std::vector<FailureNotice>{})};
  ASSERT_TRUE(agent.take_from(0, leave).has_value());
  run(9 * kSecondUs);  // the network loses packets
  ASSERT_TRUE(agent.take_from(0, {.type = MessageType::kGathered, .group = kWorld}).has_value());
  EXPECT_EQ(count(1, MessageType::kGathered), 1);
  run(5 * kSecondUs);
  EXPECT_EQ(failure_of(1), "");
  gather(1, kWorld, 1);
  run(15 * kSecondUs);
  EXPECT_THAT(failure_of(1), HasSubstr("rank 0 (node:0) has left or died"));
}

TEST_F(AgentTest, KeepsNothingOfAGroupThatAllHaveLeft) {
  start({.processes = 20, .ranks_per_process = 2, .processes_per_host = 3});
  std::vector<uint32_t> even;
  for (uint32_t rank = 0; rank < 40; rank += 2) {
    even.push_back(rank);
  }
  for (uint64_t group = 100; group < 200; ++group) {
    for (const uint32_t rank : even) {
      open_group(rank, group, even);
      gather(rank, group);
    }
    run(kSecondUs / 100);
    for (const uint32_t rank : even) {
      say(rank, {.type = MessageType::kLeaveGroup, .group = group, .payload = "record"});
    }
    run(kSecondUs / 100);
  }
  for (uint32_t process = 0; process < 20; ++process) {
    EXPECT_EQ(simulation_->agent(process).groups(), 1U) << "only the world";
  }
}

TEST_F(AgentTest, ProbesReachTheirRankOrBringItsRecord) {
  start({.processes = 4, .processes_per_host = 2});
  say(0, {.type = MessageType::kProbe, .to = 3, .group = kWorld, .payload = "question"});
  run();
  EXPECT_EQ(count(3, MessageType::kProbe), 1);
  say(3, {.type = MessageType::kLeaveGroup, .group = kWorld, .payload = "record"});
  say(3, {.type = MessageType::kLeave});
  run();
  for (int i = 0; i < 5 && count(0, MessageType::kLeft) == 0; ++i) {
    say(0, {.type = MessageType::kProbe, .to = 3, .group = kWorld, .payload = "question"});
    run();
  }
  ASSERT_EQ(count(0, MessageType::kLeft), 1);
  EXPECT_EQ(delivered_.back().message.payload, "record");
}

/// Also of the root and of those that stood in for it, as long as a member is there.
TEST_F(AgentTest, KeepsTheRecordsOfAllWhoHaveLeftForTheLastOne) {
  constexpr uint32_t kProcesses = 4;
  start({.processes = kProcesses, .ranks_per_process = 1, .processes_per_host = 4});
  for (uint32_t rank = 0; rank + 1 < kProcesses; ++rank) {
    say(rank, {.type = MessageType::kLeaveGroup, .group = kWorld, .payload = "record"});
    say(rank, {.type = MessageType::kLeave});
    run();
  }
  constexpr uint32_t kLast = kProcesses - 1;
  for (uint32_t rank = 0; rank < kLast; ++rank) {
    const int before = count(kLast, MessageType::kLeft);
    for (int i = 0; i < 8 && count(kLast, MessageType::kLeft) == before; ++i) {
      say(kLast, {.type = MessageType::kProbe, .to = rank, .group = kWorld, .payload = "question"});
      run();
    }
    ASSERT_EQ(count(kLast, MessageType::kLeft), before + 1) << "of rank " << rank;
    EXPECT_EQ(delivered_.back().message.payload, "record");
  }
}

TEST_F(AgentTest, TellsOfADeathAndThenOfAFailureThatFollows) {
  start({.processes = 3, .ranks_per_process = 1, .processes_per_host = 3});
  simulation_->kill(2);
  run();
  ASSERT_EQ(count(0, MessageType::kFail), 1);
  EXPECT_EQ(delivered_.back().message.tag, static_cast<uint64_t>(FailureCause::kDeath));
  const Error missing = fail(Code::kRemoteError, "misses a message");
  say(1, {.type = MessageType::kFail, .group = kWorld, .tag = 5, .payload = encode(missing)});
  run();
  ASSERT_EQ(count(0, MessageType::kFail), 2);
  EXPECT_EQ(delivered_.back().message.tag, static_cast<uint64_t>(FailureCause::kFailed));
}

TEST_F(AgentTest, RefusesWhatMakesNoSense) {
  start({.processes = 2, .processes_per_host = 1});
  Agent& agent = simulation_->agent(0);
  EXPECT_TRUE(agent.take(1, {.type = MessageType::kGather, .group = kWorld}).has_error());
  EXPECT_TRUE(agent.take(0, {.type = MessageType::kGather, .group = 77}).has_error());
  EXPECT_TRUE(agent.take(0, {.type = MessageType::kPost, .to = 9, .group = kWorld}).has_error());
  EXPECT_TRUE(agent.take(0, {.type = MessageType::kTable}).has_error());
  EXPECT_TRUE(agent.take_from(1, {.type = MessageType::kPost, .from = 0, .to = 0, .group = kWorld})
                  .has_error());
  EXPECT_TRUE(agent.take_from(1, {.type = MessageType::kGathered, .group = kWorld}).has_error());
  EXPECT_TRUE(
      agent.take_from(1, {.type = MessageType::kFailureNotice, .payload = "x"}).has_error());
  EXPECT_TRUE(agent.take_from(7, {.type = MessageType::kFailureNotice}).has_error());
}

}  // namespace
}  // namespace plexus
