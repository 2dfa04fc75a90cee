// SPDX-License-Identifier: Apache-2.0
#include "core/comm/stream_order.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace plexus {
namespace {

using Name = StreamOrder::Name;

class StreamOrderTest : public testing::Test {
 protected:
  StreamOrder::Work add(Name stream, Name chain = nullptr) {
    return order_.add({&stream, 1}, chain);
  }

  StreamOrder order_;
  const int names_[6] = {};
  const Name a_ = &names_[0];
  const Name b_ = &names_[1];
  const Name c_ = &names_[2];
  const Name event_ = &names_[3];
  const Name chain_ = &names_[4];
};

TEST_F(StreamOrderTest, AStreamKeepsItsOrderAndOthersHaveNone) {
  const auto work = add(a_);
  EXPECT_TRUE(order_.comes_before(work, a_));
  EXPECT_FALSE(order_.comes_before(work, b_));
  EXPECT_FALSE(order_.is_over(work));
}

TEST_F(StreamOrderTest, AnEventOrdersWhatWasBeforeIt) {
  const auto before = add(a_);
  order_.record(event_, a_);
  const auto after = add(a_);
  order_.wait(b_, event_);
  EXPECT_TRUE(order_.comes_before(before, b_));
  EXPECT_FALSE(order_.comes_before(after, b_));
}

TEST_F(StreamOrderTest, WaitsReachThroughStreams) {
  const auto first = add(a_);
  order_.record(event_, a_);
  order_.wait(b_, event_);
  order_.record(event_, b_);  // again, now of what b comes after
  order_.wait(c_, event_);
  EXPECT_TRUE(order_.comes_before(first, c_));
}

TEST_F(StreamOrderTest, AnEventThatWasNeverRecordedOrdersNothing) {
  const auto work = add(a_);
  order_.wait(b_, event_);
  EXPECT_FALSE(order_.comes_before(work, b_));
}

TEST_F(StreamOrderTest, WhatTheHostHasWaitedForComesBeforeAllThatFollows) {
  const auto work = add(a_);
  const auto clock = order_.clock_of(a_);
  const auto later = add(a_);
  order_.end(clock);
  EXPECT_TRUE(order_.is_over(work));
  EXPECT_FALSE(order_.is_over(later));
  EXPECT_TRUE(order_.comes_before(work, c_));
}

TEST_F(StreamOrderTest, AChainOrdersItsWorkOnDifferentStreams) {
  const auto first = add(a_, chain_);
  EXPECT_FALSE(order_.comes_before(first, b_));
  add(b_, chain_);
  EXPECT_TRUE(order_.comes_before(first, b_));
}

TEST_F(StreamOrderTest, WorkOnSeveralStreamsJoinsThem) {
  const auto alone = add(a_);
  const std::vector<Name> both = {a_, b_};
  const auto joint = order_.add(both, nullptr);
  EXPECT_TRUE(order_.comes_before(alone, b_));
  EXPECT_TRUE(order_.comes_before(joint, a_));
  EXPECT_TRUE(order_.comes_before(joint, b_));
  EXPECT_FALSE(order_.comes_before(joint, c_));
}

TEST_F(StreamOrderTest, AForgottenEventIsOneThatWasNeverRecorded) {
  const auto work = add(a_);
  order_.record(event_, a_);
  order_.forget(event_);
  order_.wait(b_, event_);
  EXPECT_FALSE(order_.comes_before(work, b_));
}

}  // namespace
}  // namespace plexus
