// SPDX-License-Identifier: Apache-2.0
// Messages of a step: slices of a slot, and those of 0 bytes that sends and receives exchange.
#include "core/schedule/message_count.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

/// A send of `count` bytes from chunk 0 of the input.
struct Send {
  explicit Send(uint64_t count) {
    work.slot_bytes = 1000;
    work.geometry.part_count = count;
    work.geometry.chunk_count = 1000;
    work.geometry.chunks = 1;
    work.geometry.loops = 1;
    work.geometry.last_chunk_count = count;
    step.source = Buffer::kInput;
    step.sends = 1;
  }
  Work work;
  Step step{};
};

TEST(MessageCount, OfNoBytesIsNoneInACollectiveAndOneInASend) {
  Send empty(0);
  EXPECT_FALSE(moves_data(empty.work, empty.step));
  empty.work.exchanges_empty = true;
  EXPECT_TRUE(moves_data(empty.work, empty.step));
}

TEST(MessageCount, OfAnyBytesIsOne) {
  Send send(1);
  EXPECT_TRUE(moves_data(send.work, send.step));
  send.work.geometry.loops = 0;
  EXPECT_FALSE(moves_data(send.work, send.step));
}

TEST(MessageCount, OfAllLoopsIsThatOfFullOnesAndOfTheLast) {
  const Send send(2500);
  Program program;
  program.peers = {1};
  program.lanes = {{.steps = {send.step}, .connection = 0}};
  WorkQueue::Item item;
  item.work.program = &program;
  item.work.geometry = send.work.geometry;
  item.work.geometry.loops = 3;
  item.work.geometry.last_chunk_count = 500;
  item.work.slot_bytes = 400;
  const ConnectionKey key{.peer = 1, .sends = true, .index = 0};
  EXPECT_EQ(count_messages(item, key), 3U + 3U + 2U) << "1000 bytes are 3 slices of 400, 500 are 2";
  EXPECT_EQ(count_messages(item, {.peer = 1, .sends = false, .index = 0}), 0U);
  item.work.geometry.loops = 0;
  EXPECT_EQ(count_messages(item, key), 0U);
}

TEST(MessageCount, OfAnEmptySendIsOneMessage) {
  const Send send(0);
  Program program;
  program.peers = {1};
  program.lanes = {{.steps = {send.step}, .connection = 0}};
  WorkQueue::Item item;
  item.work = send.work;
  item.work.program = &program;
  item.work.exchanges_empty = true;
  EXPECT_EQ(count_messages(item, {.peer = 1, .sends = true, .index = 0}), 1U);
}

/// Two chunks of 1000 and 100 bytes in slots of 400.
TEST(MessageCount, OfAStepIsThatOfTheChunkThatTravels) {
  Program program;
  program.peers = {1};
  Step recv{};
  recv.source = Buffer::kNone;
  recv.target = Buffer::kOutput;
  recv.target_chunk = 1;
  recv.receives = 1;
  program.lanes = {{.steps = {recv}, .connection = 0}};
  WorkQueue::Item item;
  item.work = Send(1100).work;
  item.work.program = &program;
  item.work.slot_bytes = 400;
  item.work.geometry.chunks = 2;
  item.work.geometry.last_chunk_count = 1000;
  const ConnectionKey key{.peer = 1, .sends = false, .index = 0};
  EXPECT_EQ(count_messages(item, key), 1U) << "what is received, at its target";
  program.lanes[0].steps[0].target_chunk = 0;
  EXPECT_EQ(count_messages(item, key), 3U);
  program.lanes[0].steps[0].source = Buffer::kInput;
  program.lanes[0].steps[0].source_chunk = 1;
  EXPECT_EQ(count_messages(item, key), 1U) << "what is combined, at its source";
}

class End final : public ConnectionEnd {
 public:
  End(const ConnectionKey& key, bool has_pump) : ConnectionEnd({.key = key}) {
    has_pump_ = has_pump;
  }

 private:
  Result<bool> try_connect() override { return true; }
  [[nodiscard]] std::string route() const override { return "a test"; }
};

/// Two works of one message each way with rank 1.
TEST(MessageCount, IsExpectedAtEndsThatReceiveThroughAPump) {
  Program program;
  program.peers = {1, 1};
  Step both{};
  both.source = Buffer::kInput;
  both.receives = 1;
  both.sends = 1;
  program.lanes = {{.steps = {both}, .connection = 0}};
  Execution execution;
  for (int queue = 0; queue < 2; ++queue) {
    execution.queues.push_back(new WorkQueue);
    execution.queues.back().items.push_back(new WorkQueue::Item);
    Work& work = execution.queues.back().items.back().work;
    work = Send(10).work;
    work.program = &program;
  }
  End recv({.peer = 1, .sends = false, .index = 0}, true);
  End other({.peer = 2, .sends = false, .index = 0}, true);
  End in_memory({.peer = 1, .sends = false, .index = 0}, false);
  End send({.peer = 1, .sends = true, .index = 0}, true);
  execution.ends = {&send, &in_memory, &recv, &other};
  const auto expected = count_expected(execution);
  ASSERT_EQ(expected.size(), 2U);
  EXPECT_EQ(expected[0].end, &recv);
  EXPECT_EQ(expected[0].messages, 2U);
  EXPECT_EQ(expected[1].end, &other);
  EXPECT_EQ(expected[1].messages, 0U);
}

}  // namespace
}  // namespace plexus
