// SPDX-License-Identifier: Apache-2.0
// The order in which submissions to streams start and end. Kernels stand for their work: a test
// lets each one end when it wants.
#include "core/engine/async_engine.hpp"

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/clock.hpp"
#include "tests/unit/core/engine/fakes.hpp"

namespace plexus {
namespace {

using testing::ElementsAre;

/// Polls until `is_true()`. False: not within the bound.
bool eventually(const std::function<bool()>& is_true) {
  const Deadline bound = Deadline::after(std::chrono::seconds(30));
  while (!is_true()) {
    if (bound.expired()) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

bool ends(const HostStream& stream) {
  return eventually([&] {
    const auto idle = stream.query();
    return idle.has_error() || idle.value();
  });
}

/// What happened, in order.
class Notes {
 public:
  void add(const char* note) {
    const std::lock_guard lock(mutex_);
    notes_.emplace_back(note);
  }
  std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    return notes_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> notes_;
};

/// An execution that ends when the test says so.
struct Job {
  explicit Job(FakeRank& rank) {
    kernel.run = [this]() -> Result<bool> {
      was_polled = true;
      if (fails) {
        return fail(Code::kUnhandledCudaError, "illegal address");
      }
      return may_end.load();
    };
    execution.rank = &rank;
    execution.remote = &kernel;
  }

  std::atomic<bool> may_end{false};
  std::atomic<bool> fails{false};
  std::atomic<bool> was_polled{false};
  FakeKernel kernel;
  Execution execution;
};

class AsyncEngineTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(engine_.start().has_value()); }

  Job& submit(HostStream& stream, FakeRank& rank, const char* name) {
    Job& job = jobs_.emplace_back(rank);
    engine_.submit(
        {.parts = {{.execution = &job.execution, .finished = [this, name] { notes_.add(name); }}},
         .streams = {&stream}});
    return job;
  }

  Notes notes_;
  HostStream first_;
  HostStream second_;
  FakeRank rank_;
  FakeRank other_rank_;
  std::deque<Job> jobs_;
  AsyncEngine engine_;  // last: its thread uses all of the above
};

TEST_F(AsyncEngineTest, WorkOfAStreamRunsInOrder) {
  Job& one = submit(first_, rank_, "one");
  Job& two = submit(first_, other_rank_, "two");
  two.may_end = true;
  ASSERT_TRUE(eventually([&] { return one.was_polled.load(); }));
  EXPECT_FALSE(two.was_polled) << "it is not started";
  EXPECT_FALSE(first_.query().value());
  one.may_end = true;
  ASSERT_TRUE(ends(first_));
  EXPECT_THAT(notes_.all(), ElementsAre("one", "two"));
}

TEST_F(AsyncEngineTest, WorkOfTwoStreamsDoesNotWaitForEachOther) {
  Job& one = submit(first_, rank_, "one");
  submit(second_, other_rank_, "two").may_end = true;
  EXPECT_TRUE(ends(second_));
  EXPECT_FALSE(first_.query().value());
  one.may_end = true;
  EXPECT_TRUE(ends(first_));
  EXPECT_THAT(notes_.all(), ElementsAre("two", "one"));
}

TEST_F(AsyncEngineTest, WorkOfARankRunsInOrderOverAllStreams) {
  Job& one = submit(first_, rank_, "one");
  Job& two = submit(second_, rank_, "two");
  two.may_end = true;
  ASSERT_TRUE(eventually([&] { return one.was_polled.load(); }));
  EXPECT_FALSE(two.was_polled);
  one.may_end = true;
  EXPECT_TRUE(ends(second_));
  EXPECT_THAT(notes_.all(), ElementsAre("one", "two"));
}

/// With a look at all that waits, again and again, this would take hours.
TEST_F(AsyncEngineTest, AHundredThousandQueuedSubmissionsEndInOrder) {
  constexpr int kCount = 100'000;
  Job& gate = submit(first_, rank_, "gate");
  int done = 0;
  bool in_order = true;
  for (int i = 0; i < kCount; ++i) {
    engine_.submit({.parts = {}, .streams = {&first_}, .function = [&, i] {
                      in_order = in_order && i == done++;
                    }});
  }
  gate.may_end = true;
  ASSERT_TRUE(ends(first_));
  EXPECT_EQ(done, kCount);
  EXPECT_TRUE(in_order);
}

TEST_F(AsyncEngineTest, ASubmissionWaitsForItsMark) {
  Job& one = submit(first_, rank_, "one");
  engine_.submit({.parts = {},
                  .streams = {&second_},
                  .function = [&] { notes_.add("after"); },
                  .after = first_.mark()});
  ASSERT_TRUE(eventually([&] { return one.was_polled.load(); }));
  EXPECT_FALSE(second_.query().value());
  one.may_end = true;
  ASSERT_TRUE(ends(second_));
  EXPECT_THAT(notes_.all(), ElementsAre("one", "after"));
}

TEST_F(AsyncEngineTest, AFailureReachesTheStreamAndThoseThatWaitForItsMark) {
  Job& one = submit(first_, rank_, "one");
  engine_.submit({.parts = {}, .streams = {&second_}, .after = first_.mark()});
  one.fails = true;
  ASSERT_TRUE(ends(first_));
  ASSERT_TRUE(ends(second_));
  ASSERT_TRUE(first_.query().has_error());
  EXPECT_EQ(first_.query().error().code(), Code::kRemoteError) << "the rank's reason to stop";
  EXPECT_TRUE(second_.query().has_error());
}

TEST_F(AsyncEngineTest, FunctionsRunAlsoAfterAFailure) {
  submit(first_, rank_, "one").fails = true;
  engine_.submit({.parts = {}, .streams = {&first_}, .function = [&] { notes_.add("function"); }});
  ASSERT_TRUE(eventually([&] { return notes_.all().size() == 2; }));
  EXPECT_THAT(notes_.all(), ElementsAre("one", "function"));
}

TEST_F(AsyncEngineTest, ASubmissionEndsWithTheLastOfItsParts) {
  Job& one = jobs_.emplace_back(rank_);
  Job& two = jobs_.emplace_back(other_rank_);
  engine_.submit({.parts = {{.execution = &one.execution, .finished = [&] { notes_.add("one"); }},
                            {.execution = &two.execution, .finished = [&] { notes_.add("two"); }}},
                  .streams = {&first_, &second_}});
  two.may_end = true;
  ASSERT_TRUE(eventually([&] { return one.was_polled.load() && two.was_polled.load(); }));
  EXPECT_THAT(notes_.all(), ElementsAre());
  one.may_end = true;
  EXPECT_TRUE(ends(first_));
  EXPECT_TRUE(ends(second_));
  EXPECT_THAT(notes_.all(), ElementsAre("one", "two"));
}

/// What was withdrawn from a rank ends before what runs there.
TEST_F(AsyncEngineTest, WhatRunsEndsAfterWhatWasQueuedBehindItIsWithdrawn) {
  Job& runs = submit(first_, rank_, "runs");
  ASSERT_TRUE(eventually([&] { return runs.was_polled.load(); }));
  Execution queued;
  queued.rank = &rank_;
  engine_.submit(
      {.parts = {{.execution = &queued, .finished = [this] { notes_.add("withdrawn"); }}},
       .streams = {&second_}});
  engine_.withdraw(rank_);
  ASSERT_TRUE(ends(second_));
  EXPECT_FALSE(first_.query().value());
  runs.may_end = true;
  ASSERT_TRUE(ends(first_));
  submit(first_, rank_, "next").may_end = true;
  ASSERT_TRUE(ends(first_));
  EXPECT_THAT(notes_.all(), ElementsAre("withdrawn", "runs", "next"));
}

TEST(AsyncEngine, FinishesWhatWasSubmittedBeforeItIsDestroyed) {
  HostStream stream;
  std::atomic<int> runs{0};
  {
    AsyncEngine engine;
    ASSERT_TRUE(engine.start().has_value());
    for (int i = 0; i < 100; ++i) {
      engine.submit({.parts = {}, .streams = {&stream}, .function = [&] { ++runs; }});
    }
  }
  EXPECT_EQ(runs, 100);
  EXPECT_TRUE(stream.query().value());
}

TEST(AsyncEngine, NeedsNoThreadWithoutWork) {
  AsyncEngine never_started;
  AsyncEngine idle;
  EXPECT_TRUE(idle.start().has_value());
  EXPECT_TRUE(idle.start().has_value()) << "starting twice does nothing";
}

}  // namespace
}  // namespace plexus
