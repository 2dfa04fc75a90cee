// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/call_log.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

CallRecord record_of(uint64_t sequence) {
  CallRecord record{};
  record.sequence = sequence;
  record.hash = static_cast<uint32_t>(sequence * 3);
  return record;
}

CallRecord message() {
  CallRecord record{};
  record.collective = static_cast<uint8_t>(Collective::kSend);
  return record;
}

TEST(CallLog, NumbersMessagesPerPeerDirectionAndKind) {
  constexpr MessageKey kSends{.peer = 2, .sends = true};
  constexpr MessageKey kOfVector{.peer = 2, .sends = true, .of_vector = true};
  constexpr MessageKey kReceives{.peer = 2, .sends = false};
  CallLog log(3);
  EXPECT_EQ(log.messages(kSends), 0U);
  EXPECT_EQ(log.note_message(kSends, message()), 0U);
  EXPECT_EQ(log.note_message(kSends, message()), 1U);
  EXPECT_EQ(log.note_message(kReceives, message()), 0U);
  EXPECT_EQ(log.note_message(kOfVector, message()), 0U);
  EXPECT_EQ(log.messages(kSends), 2U);
  EXPECT_EQ(log.messages(kReceives), 1U);
  EXPECT_EQ(log.messages(kOfVector), 1U);
  EXPECT_EQ(log.messages({.peer = 0, .sends = true}), 0U);
  EXPECT_EQ(log.collectives(), 0U) << "which count apart";
}

TEST(CallLog, CountsTheBytesOfEachKind) {
  CallLog log(2);
  CallRecord record = record_of(0);
  record.count = 100;
  record.type = static_cast<uint8_t>(DataType::kFloat32);
  log.note_collective(record);
  record.sequence = 1;
  record.type = static_cast<uint8_t>(DataType::kInt8);
  log.note_collective(record);
  CallRecord sent = message();
  sent.count = 3;
  sent.type = static_cast<uint8_t>(DataType::kFloat64);
  log.note_message({.peer = 1, .sends = true}, sent);
  EXPECT_EQ(log.bytes(Collective::kAllReduce), 500U);
  EXPECT_EQ(log.bytes(Collective::kSend), 24U);
  EXPECT_EQ(log.bytes(Collective::kRecv), 0U);
}

TEST(CallLog, FindsMessagesByPeerDirectionKindAndNumber) {
  constexpr MessageKey kSends{.peer = 2, .sends = true};
  CallLog log(3);
  for (int64_t count = 0; count < 3; ++count) {
    CallRecord record = message();
    record.root = 2;
    record.count = static_cast<uint64_t>(count);
    log.note_message(kSends, record);
  }
  log.note_collective(record_of(0));
  ASSERT_TRUE(log.find(kSends, 1).has_value());
  EXPECT_EQ(log.find(kSends, 1)->record.count, 1U);
  EXPECT_FALSE(log.find(kSends, 3).has_value()) << "not made yet";
  EXPECT_FALSE(log.find({.peer = 1, .sends = true}, 1).has_value());
  EXPECT_FALSE(log.find({.peer = 2, .sends = false}, 1).has_value());
  EXPECT_FALSE(log.find({.peer = 2, .sends = true, .of_vector = true}, 1).has_value());
}

TEST(CallLog, TellsThePlaceOfACallAmongAll) {
  constexpr MessageKey kSends{.peer = 0, .sends = true};
  CallLog log(1);
  for (uint64_t sequence = 0; sequence < 400; ++sequence) {
    log.note_collective(record_of(sequence));
    log.note_message(kSends, message());
  }
  EXPECT_EQ(log.find(399)->place, 798U);
  EXPECT_EQ(log.find(kSends, 399)->place, 799U);
  EXPECT_EQ(log.find(kSends, 350)->place, 701U);
}

TEST(CallLog, RemembersTheLastCollectives) {
  CallLog log(1);
  EXPECT_FALSE(log.find(0).has_value());
  for (uint64_t sequence = 0; sequence < 500; ++sequence) {
    log.note_collective(record_of(sequence));
  }
  EXPECT_EQ(log.collectives(), 500U);
  ASSERT_TRUE(log.find(499).has_value());
  EXPECT_EQ(log.find(499)->record.hash, 1497U);
  EXPECT_TRUE(log.find(300).has_value());
  EXPECT_FALSE(log.find(3).has_value()) << "too long ago";
  EXPECT_FALSE(log.find(500).has_value()) << "not made yet";
}

TEST(CallLog, ListsTheLastCallsOfBothKinds) {
  CallLog log(2);
  EXPECT_TRUE(log.list_recent().empty());
  log.note_collective(record_of(0));
  log.note_message({.peer = 1, .sends = true}, message());
  log.note_message({.peer = 1, .sends = true}, message());
  log.note_collective(record_of(1));
  EXPECT_EQ(log.calls(), 4U);
  const auto recent = log.list_recent(3);
  ASSERT_EQ(recent.size(), 3U);
  EXPECT_EQ(recent[0].collective, static_cast<uint8_t>(Collective::kSend));
  EXPECT_EQ(recent[1].sequence, 1U);
  EXPECT_EQ(recent[2].hash, 3U);
  for (int i = 0; i < 1000; ++i) {
    log.note_message({.peer = 1, .sends = true}, message());
  }
  EXPECT_EQ(log.list_recent().size(), CallLog::kRecords - 1) << "the next one takes the place of "
                                                                "the oldest";
  EXPECT_EQ(log.list_recent().back().sequence, 1001U);
  EXPECT_FALSE(log.find(1).has_value());
}

TEST(CallLog, CountsCollectivesByKind) {
  CallLog log(4);
  for (uint64_t sequence = 0; sequence < 5; ++sequence) {
    CallRecord record{};
    record.sequence = sequence;
    record.collective =
        static_cast<uint8_t>(sequence < 2 ? Collective::kScatter : Collective::kAllReduce);
    log.note_collective(record);
  }
  log.note_message({.peer = 1, .sends = true}, {});
  EXPECT_EQ(log.collectives(Collective::kScatter), 2U);
  EXPECT_EQ(log.collectives(Collective::kAllReduce), 3U);
  EXPECT_EQ(log.collectives(Collective::kBroadcast), 0U);
}

}  // namespace
}  // namespace plexus
