// SPDX-License-Identifier: Apache-2.0
#include "core/join/relay.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/join/introducer.hpp"

namespace plexus {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kWorld = 1;
constexpr uint32_t kRelayLink = 50;  // the relay, as a client of the first id's introducer

/// Ranks 0 and 3 register with the first id's introducer (clients 10 and 13), 1 and 2 with a relay
/// (clients 11 and 12). A client's number is its process_id() too.
class RelayTest : public ::testing::Test {
 protected:
  static Message join_of(uint32_t rank) {
    return {.type = MessageType::kJoin,
            .payload = encode(JoinInfo{
                .rank = rank,
                .nranks = 4,
                .version = 1,
                .process = {
                    .process = 10 + rank, .pid = static_cast<int32_t>(100 + rank), .host = "n"}})};
  }
  void join_first(uint32_t rank) { ASSERT_TRUE(first_.take(10 + rank, join_of(rank)).has_value()); }
  void join_relay(uint32_t rank) { ASSERT_TRUE(relay_.take(10 + rank, join_of(rank)).has_value()); }
  void join_all() {
    join_first(0);
    join_relay(1);
    join_relay(2);
    join_first(3);
  }
  /// Types of what the client got.
  [[nodiscard]] std::vector<MessageType> received(uint32_t client) const {
    std::vector<MessageType> types;
    for (const auto& [to, message] : sent_) {
      if (to == client) {
        types.push_back(message.type);
      }
    }
    return types;
  }
  [[nodiscard]] std::string failure_of(uint32_t client) const {
    for (const auto& [to, message] : sent_) {
      if (to == client && message.type == MessageType::kFail) {
        return decode_error(message.payload).message();
      }
    }
    return "";
  }

  std::vector<std::pair<uint32_t, Message>> sent_;  // to clients of both
  Introducer first_{kWorld, [this](uint32_t client, const Message& message) {
                      if (client == kRelayLink) {
                        relay_.take_from_first(message);
                      } else {
                        sent_.emplace_back(client, message);
                      }
                    }};
  Relay relay_{kWorld,
               {.send = [this](uint32_t client,
                               const Message& message) { sent_.emplace_back(client, message); },
                .send_to_first =
                    [this](const Message& message) {
                      EXPECT_TRUE(first_.take(kRelayLink, message).has_value());
                    }}};
};

TEST_F(RelayTest, AllJoinWhereverTheyRegister) {
  join_all();
  EXPECT_EQ(received(10), std::vector{MessageType::kTable});
  for (const uint32_t client : {11U, 12U, 13U}) {
    EXPECT_EQ(received(client), std::vector{MessageType::kJoined}) << client;
  }
  const auto table = ProcessTable::decode(sent_.back().second.payload);
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(table.value().nprocesses(), 4U);
  EXPECT_EQ(table.value().name_of(2), "rank 2 (n:102)");
}

TEST_F(RelayTest, TheTableReachesARootThatRegisteredHere) {
  join_first(1);
  join_first(2);
  join_first(3);
  join_relay(0);
  EXPECT_EQ(received(10), std::vector{MessageType::kTable});
  EXPECT_EQ(received(13), std::vector{MessageType::kJoined});
}

TEST_F(RelayTest, PassesOnTheTableToWhoAsksForIt) {
  join_all();
  ASSERT_TRUE(relay_.take(12, {.type = MessageType::kTable}).has_value());
  EXPECT_EQ(received(12), (std::vector{MessageType::kJoined, MessageType::kTable}));
  EXPECT_EQ(received(11), std::vector{MessageType::kJoined});
}

TEST_F(RelayTest, NamesAClientThatDied) {
  join_relay(1);
  join_relay(2);
  join_first(3);
  relay_.lose(12);
  for (const uint32_t client : {11U, 13U}) {
    EXPECT_THAT(failure_of(client), HasSubstr("rank 2 (n:102) died")) << client;
  }
  join_first(0);
  EXPECT_THAT(failure_of(10), HasSubstr("rank 2 (n:102) died"));
}

TEST_F(RelayTest, NamesAClientThatDiedBeforeItHadTheTable) {
  join_all();
  ASSERT_TRUE(relay_.take(11, {.type = MessageType::kLeave}).has_value());
  relay_.lose(11);
  EXPECT_EQ(failure_of(12), "") << "it had the table";
  relay_.lose(12);
  EXPECT_THAT(failure_of(13), HasSubstr("rank 2 (n:102) died"));
}

TEST_F(RelayTest, PassesOnWhyARankCannotTakePart) {
  join_relay(1);
  join_first(0);
  const Error error = fail(Code::kSystemError, "no memory");
  ASSERT_TRUE(relay_.take(11, {.type = MessageType::kFail, .from = 1, .payload = encode(error)})
                  .has_value());
  EXPECT_THAT(failure_of(10), HasSubstr("rank 1 (n:101) failed: no memory"));
  EXPECT_EQ(failure_of(11), failure_of(10));
}

TEST_F(RelayTest, ItsLossIsThatOfItsClients) {
  join_first(0);
  join_relay(1);
  first_.lose(kRelayLink);
  EXPECT_THAT(failure_of(10), HasSubstr("with which rank 1 (n:101) joins died"));
}

TEST_F(RelayTest, TheLossOfTheFirstIsAFailureUntilAllHaveJoined) {
  join_relay(1);
  relay_.lose_first("it closed the connection");
  EXPECT_THAT(failure_of(11), HasSubstr("the first unique id died"));
  EXPECT_THAT(failure_of(11), HasSubstr("it closed the connection"));
  join_relay(2);
  EXPECT_THAT(failure_of(12), HasSubstr("the job failed before rank 2 joined"));
}

TEST_F(RelayTest, AfterThatItIsOneForWhoAsksForTheTable) {
  join_all();
  relay_.lose_first("it closed the connection");
  EXPECT_THAT(failure_of(11), IsEmpty());
  ASSERT_TRUE(relay_.take(11, {.type = MessageType::kTable}).has_value());
  EXPECT_THAT(failure_of(11), HasSubstr("the first unique id died"));
}

TEST_F(RelayTest, IsOverWhenAllClientsHaveTheTable) {
  join_all();
  ASSERT_TRUE(relay_.take(11, {.type = MessageType::kLeave}).has_value());
  EXPECT_FALSE(relay_.is_over());
  ASSERT_TRUE(relay_.take(12, {.type = MessageType::kLeave}).has_value());
  EXPECT_TRUE(relay_.is_over());
}

TEST_F(RelayTest, RanksOfAProcessJoinOverOneConnection) {
  join_relay(1);
  const Message second{
      .type = MessageType::kJoin,
      .payload = encode(JoinInfo{.rank = 2,
                                 .nranks = 4,
                                 .version = 1,
                                 .process = {.process = 11, .pid = 101, .host = "n"}})};
  ASSERT_TRUE(relay_.take(11, second).has_value());
  join_first(0);
  join_first(3);
  EXPECT_EQ(received(11), std::vector{MessageType::kJoined});
}

TEST_F(RelayTest, RefusesOtherMessages) {
  EXPECT_TRUE(relay_.take(11, {.type = MessageType::kGather}).has_error());
  EXPECT_TRUE(relay_.take(11, {.type = MessageType::kJoin, .payload = "x"}).has_error());
  join_relay(1);
  EXPECT_TRUE(relay_.take(11, join_of(2)).has_error()) << "another process";
}

}  // namespace
}  // namespace plexus
