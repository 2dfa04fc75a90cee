// SPDX-License-Identifier: Apache-2.0
// Lanes of programs made by hand, over Fifos in this process: what waits for what, the order of
// operands, and messages that are not those of the call.
#include "kernels/host/executor.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr uint32_t kHash = 7;
constexpr uint32_t kSlotBytes = 1024;
constexpr size_t kSlotElements = kSlotBytes / sizeof(int32_t);

/// Tells the order of its operands: (1, 2, 3) give 123.
void append_digits(void* target, const void* a, const void* b, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) {
    static_cast<int32_t*>(target)[i] =
        10 * static_cast<const int32_t*>(a)[i] + static_cast<const int32_t*>(b)[i];
  }
}

/// A connection and the rank at its other end, which the test plays.
struct Link {
  std::unique_ptr<Fifo> fifo = std::make_unique<Fifo>();
  std::vector<std::byte> data = std::vector<std::byte>(kSlots * kSlotBytes);
  SendConnection send{fifo.get(), data.data(), {.peer = 1, .slot_stride = kSlotBytes}};
  RecvConnection recv{fifo.get(), data.data(), {.peer = 0, .slot_stride = kSlotBytes}};

  void put(const std::vector<int32_t>& values, uint32_t hash = kHash) {
    const auto bytes = static_cast<uint32_t>(values.size() * sizeof(int32_t));
    ASSERT_TRUE(send.try_acquire(bytes));
    std::memcpy(send.payload(bytes), values.data(), bytes);
    send.commit(bytes, hash);
  }
  std::vector<int32_t> take() {
    EXPECT_TRUE(recv.try_peek());
    std::vector<int32_t> values(recv.header().size_bytes / sizeof(int32_t));
    std::memcpy(values.data(), recv.payload(), recv.header().size_bytes);
    recv.release();
    return values;
  }
};

class LaneRunTest : public testing::Test {
 protected:
  /// Before prepare().
  void add_lane(std::vector<Step> steps) {
    program_.lanes.push_back({.steps = std::move(steps), .connection = 0});
  }
  /// `peers`: of all steps, receives first, as indices of links. `count` elements in `loops` loops
  /// of `chunks` chunks.
  void prepare(const std::vector<size_t>& peers,
               uint64_t count,
               uint32_t chunks = 1,
               uint32_t loops = 1) {
    for (const size_t peer : peers) {
      while (links_.size() <= peer) {
        links_.emplace_back();
      }
      program_.peers.push_back(static_cast<int>(peer));
      work_.sends.push_back(&links_[peer].send);
      work_.recvs.push_back(&links_[peer].recv);
    }
    program_.nranks = 2;
    program_.chunks = static_cast<int>(chunks);
    const uint64_t in_loop = count / loops;
    work_.program = &program_;
    work_.geometry = {.part_offset = 0,
                      .part_count = count,
                      .chunk_count = std::max<uint64_t>(in_loop / chunks, 1),
                      .last_chunk_count = std::max<uint64_t>(in_loop / chunks, 1),
                      .chunks = chunks,
                      .loops = loops,
                      .input_stride = 0,
                      .output_stride = 0,
                      .blocked = false};
    work_.type = DataType::kInt32;
    work_.op = ReduceOp::plain(ReduceKind::kSum);
    work_.reduce = append_digits;
    work_.element_bytes = sizeof(int32_t);
    work_.slot_bytes = kSlotBytes;
    work_.call.hash = kHash;
    input_.resize(count);
    std::fill(input_.begin(), input_.end(), 2);
    output_.assign(count, -1);
    work_.input.address = reinterpret_cast<std::byte*>(input_.data());
    work_.output.address = reinterpret_cast<std::byte*>(output_.data());
    runs_.reserve(program_.lanes.size());  // lanes look at each other
    for (size_t lane = 0; lane < program_.lanes.size(); ++lane) {
      runs_.emplace_back(&work_, static_cast<int>(lane), runs_.data());
      queue_.add(&runs_.back());
    }
  }
  Progress advance(size_t lane = 0) { return runs_[lane].advance(queue_); }

  std::deque<Link> links_;
  Program program_;
  Work work_;
  std::vector<int32_t> input_;
  std::vector<int32_t> output_;
  std::vector<LaneRun> runs_;
  RunQueue queue_{0};
};

TEST_F(LaneRunTest, WaitsForItsMessageAndStoresIt) {
  add_lane({{.target = Buffer::kOutput, .receives = 1}});
  prepare({0}, 3);
  EXPECT_EQ(advance(), Progress::kPending);
  EXPECT_EQ(runs_[0].waits_to_recv(), &links_[0].recv);
  EXPECT_TRUE(runs_[0].waits_at_fifo());
  EXPECT_FALSE(runs_[0].can_go_on());
  EXPECT_FALSE(runs_[0].moved());
  EXPECT_FALSE(runs_[0].has_begun());
  EXPECT_EQ(links_[0].recv.wanted().place, work_.output.address) << "it may be delivered there";
  links_[0].put({4, 5, 6});
  EXPECT_TRUE(runs_[0].can_go_on());
  EXPECT_EQ(advance(), Progress::kDone);
  EXPECT_TRUE(runs_[0].moved());
  EXPECT_FALSE(runs_[0].waits_at_fifo());
  EXPECT_THAT(output_, ElementsAre(4, 5, 6));
  EXPECT_EQ(links_[0].recv.received(), 1U);
}

TEST_F(LaneRunTest, CombinesInTheOrderOfThePeersWithItsOwnPartAtItsPlace) {
  for (const auto& [position, expected] :
       {std::pair(0, 234), std::pair(1, 324), std::pair(2, 342)}) {
    program_ = {};
    runs_.clear();
    queue_.clear();
    links_.clear();
    work_ = {};
    add_lane({{.source = Buffer::kInput,
               .target = Buffer::kOutput,
               .receives = 2,
               .own_position = position}});
    prepare({0, 1}, 2);
    links_[0].put({3, 3});
    EXPECT_EQ(advance(), Progress::kPending);
    EXPECT_EQ(runs_[0].waits_to_recv(), &links_[1].recv);
    links_[1].put({4, 4});
    EXPECT_EQ(advance(), Progress::kDone);
    EXPECT_THAT(output_, Each(expected)) << position;
  }
}

TEST_F(LaneRunTest, CombinesWithoutAMessageWhatItAccumulates) {
  add_lane({{.source = Buffer::kInput,
             .target = Buffer::kOutput,
             .accumulates = true,
             .own_position = 1}});
  prepare({}, 3);
  std::fill(output_.begin(), output_.end(), 5);
  EXPECT_EQ(advance(), Progress::kDone);
  EXPECT_THAT(output_, Each(52));
}

TEST_F(LaneRunTest, DividesOnlyWhatIsComplete) {
  for (const bool completes : {false, true}) {
    program_ = {};
    runs_.clear();
    queue_.clear();
    work_ = {};
    add_lane({{.source = Buffer::kInput, .target = Buffer::kOutput, .completes = completes}});
    prepare({}, 3);
    work_.op = ReduceOp::average(DataType::kInt32, 2);
    EXPECT_EQ(advance(), Progress::kDone);
    EXPECT_THAT(output_, Each(completes ? 1 : 2));
  }
}

TEST_F(LaneRunTest, PassesOnWhatItReceivesToAllItSendsTo) {
  add_lane({{.source = Buffer::kInput, .receives = 1, .sends = 2}});
  prepare({0, 1, 2}, 4);
  links_[0].put({1, 1, 1, 1});
  EXPECT_EQ(advance(), Progress::kDone);
  EXPECT_THAT(links_[1].take(), Each(21));
  EXPECT_THAT(links_[2].take(), ElementsAre(21, 21, 21, 21));
  EXPECT_THAT(output_, Each(-1)) << "it has no target";
}

TEST_F(LaneRunTest, SendsSlicesOfASlotAndWaitsWhileAllAreFull) {
  add_lane({{.source = Buffer::kInput, .sends = 1}});
  prepare({0}, (kSlots + 1) * kSlotElements + 1);
  std::iota(input_.begin(), input_.end(), 0);
  EXPECT_EQ(advance(), Progress::kPending);
  EXPECT_EQ(runs_[0].waits_to_send(), &links_[0].send);
  EXPECT_EQ(runs_[0].waits_to_recv(), nullptr);
  EXPECT_FALSE(runs_[0].can_go_on());
  EXPECT_TRUE(runs_[0].has_begun());
  EXPECT_EQ(links_[0].send.sent(), kSlots);
  std::vector<int32_t> arrived = links_[0].take();
  EXPECT_EQ(arrived.size(), kSlotElements);
  EXPECT_TRUE(runs_[0].can_go_on());
  for (Progress progress = advance(); arrived.size() < input_.size(); progress = advance()) {
    ASSERT_NE(progress, Progress::kFailed);
    const std::vector<int32_t> more = links_[0].take();
    arrived.insert(arrived.end(), more.begin(), more.end());
  }
  EXPECT_EQ(advance(), Progress::kDone);
  EXPECT_THAT(arrived, ElementsAreArray(input_));
  EXPECT_EQ(links_[0].send.sent(), kSlots + 2);
}

TEST_F(LaneRunTest, FailsAtAMessageOfAnotherCallOrSizeAndSaysWhatCame) {
  add_lane({{.target = Buffer::kOutput, .receives = 1}});
  prepare({0}, 3);
  links_[0].put({1, 2, 3}, kHash + 1);
  EXPECT_EQ(advance(), Progress::kFailed);
  EXPECT_EQ(runs_[0].failure().kind, LaneFailure::Kind::kOtherCall);
  EXPECT_EQ(runs_[0].failure().connection, &links_[0].recv);
  EXPECT_EQ(runs_[0].failure().hash_arrived, kHash + 1);
  EXPECT_THAT(output_, Each(-1));
  links_[0].take();
  links_[0].put({1, 2});
  runs_[0].restart();
  EXPECT_EQ(runs_[0].failure().kind, LaneFailure::Kind::kNone);
  EXPECT_EQ(advance(), Progress::kFailed);
  EXPECT_EQ(runs_[0].failure().kind, LaneFailure::Kind::kOtherSize);
  EXPECT_EQ(runs_[0].failure().size_expected, 12U);
  EXPECT_EQ(runs_[0].failure().size_arrived, 8U);
}

TEST_F(LaneRunTest, AStepThatComesAfterOneOfAnotherLaneWaitsForIt) {
  add_lane({{.target = Buffer::kOutput, .receives = 1}, {}});
  add_lane(
      {{.source = Buffer::kInput, .target = Buffer::kOutput, .after = {.lane = 0, .step = 0}}});
  prepare({0}, 2);
  EXPECT_EQ(advance(1), Progress::kPending);
  EXPECT_FALSE(runs_[1].waits_at_fifo());
  EXPECT_EQ(advance(0), Progress::kPending);
  EXPECT_EQ(advance(1), Progress::kPending);
  links_[0].put({8, 8});
  EXPECT_EQ(advance(0), Progress::kDone);
  EXPECT_EQ(advance(1), Progress::kDone);
  EXPECT_THAT(output_, Each(2)) << "the second lane's copy came last";
}

TEST_F(LaneRunTest, LanesThatShareScratchBeginALoopTogether) {
  add_lane({{.source = Buffer::kInput, .target = Buffer::kOutput}});
  add_lane({{.target = Buffer::kOutput, .receives = 1}});
  program_.shares_scratch = true;
  prepare({0}, 4, 1, 2);
  EXPECT_EQ(advance(0), Progress::kPending) << "the other lane is still in the first loop";
  EXPECT_THAT(output_, ElementsAre(2, 2, -1, -1));
  links_[0].put({9, 9});
  EXPECT_EQ(advance(1), Progress::kPending);
  EXPECT_EQ(advance(0), Progress::kDone);
  EXPECT_THAT(output_, ElementsAre(9, 9, 2, 2));
  links_[0].put({8, 8});
  EXPECT_EQ(advance(1), Progress::kDone);
  EXPECT_THAT(output_, ElementsAre(9, 9, 8, 8));
}

TEST_F(LaneRunTest, LongWorkTakesTurnsOfHalfAMebibyte) {
  constexpr uint64_t kTurnElements = uint64_t{512} * 1024 / sizeof(int32_t);
  add_lane({{.source = Buffer::kInput, .target = Buffer::kOutput}});
  prepare({}, 2 * kTurnElements + 1);
  EXPECT_EQ(advance(), Progress::kYielded);
  EXPECT_EQ(std::count(output_.begin(), output_.end(), 2), kTurnElements);
  EXPECT_EQ(advance(), Progress::kYielded);
  EXPECT_EQ(advance(), Progress::kDone);
  EXPECT_THAT(output_, Each(2));
}

TEST_F(LaneRunTest, EmptyChunksTravelOnlyInCallsThatExchangeThem) {
  for (const bool exchanges : {false, true}) {
    program_ = {};
    runs_.clear();
    queue_.clear();
    work_ = {};
    add_lane({{.target = Buffer::kOutput, .receives = 1}});
    prepare({0}, 0);
    work_.exchanges_empty = exchanges;
    EXPECT_EQ(advance(), exchanges ? Progress::kPending : Progress::kDone);
  }
  links_[0].put({});
  EXPECT_EQ(advance(), Progress::kDone);
}

TEST_F(LaneRunTest, ChunksThatGoTogetherAreOneMessageAndOneSlot) {
  add_lane({{.source = Buffer::kInput,
             .with_next = true,
             .source_chunk = 2,
             .peers_first = 0,
             .sends = 1},
            {.source = Buffer::kInput, .source_chunk = 0, .peers_first = 0, .sends = 1}});
  add_lane({{.target = Buffer::kOutput,
             .with_next = true,
             .target_chunk = 1,
             .peers_first = 1,
             .receives = 1},
            {.target = Buffer::kOutput, .target_chunk = 2, .peers_first = 1, .receives = 1}});
  prepare({0, 1}, 6, 3);
  std::iota(input_.begin(), input_.end(), 1);
  EXPECT_EQ(advance(0), Progress::kDone);
  EXPECT_EQ(links_[0].send.sent(), 1U);
  EXPECT_THAT(links_[0].take(), ElementsAre(5, 6, 1, 2));
  links_[1].put({11, 12, 13, 14});
  EXPECT_EQ(advance(1), Progress::kDone);
  EXPECT_THAT(output_, ElementsAre(-1, -1, 11, 12, 13, 14));
}

TEST_F(LaneRunTest, RunsTheSameAgainAfterARestart) {
  add_lane({{.target = Buffer::kOutput, .receives = 1},
            {.source = Buffer::kInput, .peers_first = 1, .sends = 1}});
  prepare({0, 1}, 2);
  for (int32_t run = 0; run < 3; ++run) {
    runs_[0].restart();
    EXPECT_EQ(runs_[0].step(), 0U);
    links_[0].put({run, run});
    EXPECT_EQ(advance(), Progress::kDone);
    EXPECT_THAT(output_, Each(run));
    EXPECT_THAT(links_[1].take(), ElementsAre(2, 2));
  }
}

TEST_F(LaneRunTest, WakesTheLaneOfItsEngineThatWaitsForWhatItMoves) {
  add_lane({{.source = Buffer::kInput, .sends = 1}});
  add_lane({{.target = Buffer::kOutput, .receives = 1}});
  program_.lanes[1].steps[0].peers_first = 0;
  prepare({0}, 2);
  RunQueue engine(3);
  for (LaneRun& run : runs_) {
    engine.add(&run);
  }
  EXPECT_EQ(runs_[1].advance(engine), Progress::kPending);
  links_[0].fifo->receiver.engine = 3;
  links_[0].fifo->receiver.waiter = 2;
  EXPECT_EQ(runs_[0].advance(engine), Progress::kDone);
  ASSERT_FALSE(engine.empty());
  EXPECT_EQ(engine.pop(), &runs_[1]);
  EXPECT_EQ(runs_[1].advance(engine), Progress::kDone);
  EXPECT_THAT(output_, Each(2));
}

}  // namespace
}  // namespace plexus
