// SPDX-License-Identifier: Apache-2.0
#include "core/engine/core_neighbours.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

nanoseconds others_ran{};

class CoreNeighboursTest : public ::testing::Test {
 protected:
  CoreNeighboursTest() { others_ran = {}; }
  /// Time passes, of which the other threads of the process run that much.
  void pass(nanoseconds time, nanoseconds others) {
    now_ += time;
    others_ran += others;
  }
  void yield(nanoseconds time) {
    const auto before = now_;
    now_ += time;
    neighbours_.learn(before, now_);
  }

  Clock::time_point now_ = Clock::now();
  CoreNeighbours neighbours_{[]() noexcept { return others_ran; }};
};

TEST_F(CoreNeighboursTest, AShortYieldTellsThatNobodyIsThere) {
  yield(milliseconds(3));
  pass(milliseconds(5), milliseconds(5));
  yield(microseconds(2));
  EXPECT_FALSE(neighbours_.are_known());
}

TEST_F(CoreNeighboursTest, ALongYieldAndBusyThreadsTellThatTheyAreThere) {
  yield(milliseconds(3));
  EXPECT_FALSE(neighbours_.are_known()) << "it is not known yet who ran lately";
  pass(milliseconds(5), milliseconds(5));
  yield(milliseconds(3));
  EXPECT_TRUE(neighbours_.are_known());
  EXPECT_TRUE(neighbours_.are_there(now_));
}

TEST_F(CoreNeighboursTest, ThreadsOfOtherProcessesDoNotCount) {
  yield(milliseconds(3));
  pass(milliseconds(5), nanoseconds(0));
  yield(milliseconds(3));
  EXPECT_FALSE(neighbours_.are_known());
}

TEST_F(CoreNeighboursTest, ThreadsThatEndComputingAreNoLongerThere) {
  yield(milliseconds(3));
  pass(milliseconds(5), milliseconds(5));
  yield(milliseconds(3));
  pass(milliseconds(2), milliseconds(2));
  EXPECT_TRUE(neighbours_.are_there(now_));
  pass(milliseconds(2), microseconds(100));
  EXPECT_FALSE(neighbours_.are_there(now_));
  EXPECT_FALSE(neighbours_.are_known());
}

TEST_F(CoreNeighboursTest, WhatWasLongAgoTellsNothing) {
  yield(milliseconds(3));
  pass(milliseconds(5), milliseconds(5));
  yield(milliseconds(3));
  pass(std::chrono::seconds(1), std::chrono::seconds(1));
  EXPECT_FALSE(neighbours_.are_there(now_));
}

}  // namespace
}  // namespace plexus
