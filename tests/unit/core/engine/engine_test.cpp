// SPDX-License-Identifier: Apache-2.0
// The engine's loop over connections and kernels that the test makes up. Programs of ranks are run
// in tests/unit/core/schedule/plan_test.cpp.
#include "core/engine/engine.hpp"

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/engine/fakes.hpp"

namespace plexus {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Execution execution_of(FakeRank& rank, std::vector<ConnectionEnd*> ends) {
  Execution execution;
  execution.rank = &rank;
  execution.ends = std::move(ends);
  return execution;
}

void run(Execution& execution) {
  Execution* const one = &execution;
  Engine().run({&one, 1});
}

/// Writes down what the engine tells.
class Watch final : public ExecutionWatch {
 public:
  std::vector<std::string> reported;
  void on_launch(void* /*stream*/, const uint64_t* /*times*/) noexcept override {}
  void on_begin() noexcept override { reported.emplace_back("begin"); }
  void on_item_begin(const WorkQueue::Item& /*item*/) noexcept override {
    reported.emplace_back("item");
  }
  void on_item_end(const WorkQueue::Item& /*item*/) noexcept override {}
  void on_end() noexcept override { reported.emplace_back("end"); }
};

TEST(Engine, ConnectsEveryEndBeforeAnExecutionFinishes) {
  FakeRank rank;
  FakeEnd quick(1);
  FakeEnd slow(2);
  slow.connect = [&] { return slow.calls >= 5; };
  Execution execution = execution_of(rank, {&quick, &slow});
  run(execution);
  EXPECT_TRUE(execution.finished);
  EXPECT_FALSE(execution.error.has_value());
  EXPECT_TRUE(execution.connected);
  EXPECT_EQ(slow.calls, 5);
  EXPECT_EQ(quick.calls, 1) << "a connected end is left alone";
}

// Rounds take longer where there is more to look at; a thread of streams would take the core from
// computing threads for so much longer. Each sleep takes at least 100 us, so that load cannot make
// this fail.
TEST(Engine, SpinsForATimeAndNotForANumberOfRounds) {
  constexpr auto kRound = std::chrono::microseconds(10);
  constexpr int kRounds = 1000;  // fewer than a wait spins where rounds are short
  FakeRank rank;
  FakeEnd end(1);
  end.connect = [&] {
    for (const auto until = Clock::now() + kRound; Clock::now() < until;) {
    }
    return false;
  };
  Execution execution = execution_of(rank, {&end});
  Engine engine;
  engine.add(execution);
  const auto start = Clock::now();
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_FALSE(engine.progress());
    engine.wait();
  }
  EXPECT_GT(Clock::now() - start, 4 * kRounds * kRound) << "it has not slept";
  rank.stop = true;
  engine.progress();
}

TEST(Engine, AConnectionThatFailsFailsTheExecutionAndTheRank) {
  FakeRank rank;
  FakeEnd end(1);
  end.connect = []() -> Result<bool> { return fail(Code::kSystemError, "no route"); };
  Execution execution = execution_of(rank, {&end});
  run(execution);
  EXPECT_TRUE(execution.finished);
  ASSERT_TRUE(execution.error.has_value());
  EXPECT_EQ(execution.error->message(), "no route");
  EXPECT_THAT(rank.failures, ElementsAre("no route"));
}

TEST(Engine, AStoppedRankEndsItsExecutionWithTheReason) {
  FakeRank rank;
  FakeEnd end(1);
  end.connect = [&] {
    rank.stop = end.calls == 3;
    return false;
  };
  Execution execution = execution_of(rank, {&end});
  run(execution);
  ASSERT_TRUE(execution.error.has_value());
  EXPECT_EQ(execution.error->message(), "rank 1 died");
  EXPECT_THAT(rank.failures, IsEmpty()) << "the rank knows already";
  EXPECT_EQ(end.calls, 3);
}

// A call on a stream after one that failed: a message of it would reach a peer that is still in the
// failed one, and tell it that the ranks' calls differ.
TEST(Engine, AStoppedRankSendsNothingOfItsNextExecution) {
  FakeRank rank;
  const auto watch = std::make_shared<Watch>();
  Execution execution = execution_of(rank, {});
  execution.watch = watch;
  execution.queues.push_back(std::make_unique<WorkQueue>());
  execution.queues.back().items.push_back(std::make_unique<WorkQueue::Item>());
  rank.stop = true;
  Engine engine;
  engine.add(execution);
  while (!engine.empty()) {
    engine.progress();
  }
  ASSERT_TRUE(execution.error.has_value());
  EXPECT_EQ(execution.error->message(), "rank 1 died");
  EXPECT_THAT(watch->reported, ElementsAre("begin", "end")) << "no item begins";
}

TEST(Engine, OneExecutionThatFailsLeavesTheOthers) {
  FakeRank bad;
  FakeRank good;
  FakeEnd failing(1);
  failing.connect = []() -> Result<bool> { return fail(Code::kSystemError, "no route"); };
  FakeEnd slow(1);
  slow.connect = [&] { return slow.calls >= 10; };
  Execution first = execution_of(bad, {&failing});
  Execution second = execution_of(good, {&slow});
  const std::array<Execution*, 2> both = {&first, &second};
  Engine().run(both);
  EXPECT_TRUE(first.error.has_value());
  EXPECT_TRUE(second.finished);
  EXPECT_FALSE(second.error.has_value());
  EXPECT_THAT(good.failures, IsEmpty());
}

TEST(Engine, AnExecutionCanRunAgainAfterAFailure) {
  FakeRank rank;
  FakeEnd end(1);
  end.connect = [&]() -> Result<bool> {
    if (end.calls == 1) {
      return fail(Code::kSystemError, "no route");
    }
    return true;
  };
  Execution execution = execution_of(rank, {&end});
  run(execution);
  ASSERT_TRUE(execution.error.has_value());
  rank.stop = false;
  run(execution);
  EXPECT_FALSE(execution.error.has_value());
}

TEST(Engine, AKernelIsPolledUntilItEnds) {
  FakeRank rank;
  FakeKernel kernel;
  kernel.run = [&] { return kernel.polls >= 4; };
  Execution execution = execution_of(rank, {});
  execution.remote = &kernel;
  run(execution);
  EXPECT_FALSE(execution.error.has_value());
  EXPECT_EQ(kernel.polls, 4);
}

TEST(Engine, AKernelThatFailsFailsTheRank) {
  FakeRank rank;
  FakeKernel kernel;
  kernel.run = []() -> Result<bool> { return fail(Code::kUnhandledCudaError, "illegal address"); };
  Execution execution = execution_of(rank, {});
  execution.remote = &kernel;
  run(execution);
  ASSERT_TRUE(execution.error.has_value());
  EXPECT_THAT(rank.failures, ElementsAre("illegal address"));
}

TEST(Engine, AStoppedExecutionWaitsForTheEndOfItsKernel) {
  FakeRank rank;
  rank.stop = true;
  FakeKernel kernel;
  kernel.run = [&] { return kernel.polls >= 6; };
  Execution execution = execution_of(rank, {});
  execution.remote = &kernel;
  run(execution);
  EXPECT_EQ(kernel.polls, 6) << "it may still use its memory";
  ASSERT_TRUE(execution.error.has_value());
  EXPECT_EQ(execution.error->message(), "rank 1 died");
}

TEST(Engine, AWatchHearsOfBeginAndEndAlsoOfAFailure) {
  FakeRank rank;
  FakeEnd end(1);
  const auto watch = std::make_shared<Watch>();
  Execution execution = execution_of(rank, {&end});
  execution.watch = watch;
  run(execution);
  EXPECT_THAT(watch->reported, ElementsAre("begin", "end"));
  rank.stop = true;
  Execution stopped = execution_of(rank, {&end});
  stopped.watch = watch;
  run(stopped);
  EXPECT_TRUE(stopped.error.has_value());
  EXPECT_THAT(watch->reported, ElementsAre("begin", "end", "begin", "end"));
}

TEST(Engine, ProgressSaysWhetherAnythingMoved) {
  FakeRank rank;
  FakeEnd end(1);
  bool may_connect = false;
  end.connect = [&] { return may_connect; };
  Execution execution = execution_of(rank, {&end});
  Engine engine;
  EXPECT_TRUE(engine.empty());
  engine.add(execution);
  EXPECT_FALSE(engine.empty());
  EXPECT_FALSE(engine.progress());
  EXPECT_FALSE(execution.finished);
  may_connect = true;
  EXPECT_TRUE(engine.progress());
  EXPECT_TRUE(execution.finished);
  EXPECT_TRUE(engine.empty());
}

}  // namespace
}  // namespace plexus
