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

TEST(CallLog, NumbersMessagesPerPeerDirectionAndKind) {
  constexpr MessageKey kSends{.peer = 2, .sends = true};
  constexpr MessageKey kOfVector{.peer = 2, .sends = true, .of_vector = true};
  constexpr MessageKey kReceives{.peer = 2, .sends = false};
  CallLog log(3);
  EXPECT_EQ(log.messages(kSends), 0U);
  EXPECT_EQ(log.note_message(kSends), 0U);
  EXPECT_EQ(log.note_message(kSends), 1U);
  EXPECT_EQ(log.note_message(kReceives), 0U);
  EXPECT_EQ(log.note_message(kOfVector), 0U);
  EXPECT_EQ(log.messages(kSends), 2U);
  EXPECT_EQ(log.messages(kReceives), 1U);
  EXPECT_EQ(log.messages(kOfVector), 1U);
  EXPECT_EQ(log.messages({.peer = 0, .sends = true}), 0U);
  EXPECT_EQ(log.collectives(), 0U) << "which count apart";
}

TEST(CallLog, RemembersTheLastCollectives) {
  CallLog log(1);
  EXPECT_FALSE(log.find(0).has_value());
  for (uint64_t sequence = 0; sequence < 100; ++sequence) {
    log.note_collective(record_of(sequence));
  }
  EXPECT_EQ(log.collectives(), 100U);
  ASSERT_TRUE(log.find(99).has_value());
  EXPECT_EQ(log.find(99)->hash, 297U);
  EXPECT_TRUE(log.find(80).has_value());
  EXPECT_FALSE(log.find(3).has_value()) << "too long ago";
  EXPECT_FALSE(log.find(100).has_value()) << "not made yet";
}

}  // namespace
}  // namespace plexus
