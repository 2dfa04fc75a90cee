// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/control.hpp"

#include <atomic>
#include <cstring>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::perf {
namespace {

constexpr int kWorkers = 4;

template <class Work>
void run_workers(SharedArea& area, Work work) {
  std::vector<std::thread> threads;
  threads.reserve(kWorkers);
  for (int worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([&, worker] { work(worker, *area.make_control(worker)); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(SharedControl, BarrierHoldsUntilAllCame) {
  SharedArea area = SharedArea::create(kWorkers).value();
  std::atomic<int> before{0};
  std::atomic<int> early{0};
  run_workers(area, [&](int, Control& control) {
    for (int round = 1; round <= 100; ++round) {
      ++before;
      EXPECT_TRUE(control.barrier());
      early += before < round * kWorkers;
      EXPECT_TRUE(control.barrier());
    }
  });
  EXPECT_EQ(early, 0);
}

TEST(SharedControl, FoldGivesAllTheSame) {
  SharedArea area = SharedArea::create(kWorkers).value();
  run_workers(area, [&](int worker, Control& control) {
    for (int round = 0; round < 50; ++round) {
      double values[] = {double(worker), double(-worker), double(round)};
      EXPECT_TRUE(control.fold(values, Fold::kMax));
      EXPECT_THAT(values, ::testing::ElementsAre(kWorkers - 1, 0, round));
      double least[] = {double(worker + round)};
      EXPECT_TRUE(control.fold(least, Fold::kMin));
      EXPECT_EQ(least[0], round);
      double sum[] = {double(worker + round)};
      EXPECT_TRUE(control.fold(sum, Fold::kSum));
      EXPECT_EQ(sum[0], 6 + kWorkers * round);
    }
  });
}

TEST(SharedControl, AWorkerThatGivesUpReleasesTheOthers) {
  SharedArea area = SharedArea::create(kWorkers).value();
  run_workers(area, [&](int worker, Control& control) {
    if (worker == 2) {
      area.give_up(worker, fail(Code::kSystemError, "no memory"));
    } else {
      EXPECT_FALSE(control.barrier());
    }
  });
  ASSERT_TRUE(area.failure_of(2));
  EXPECT_EQ(area.failure_of(2)->code, Code::kSystemError);
  EXPECT_EQ(area.failure_of(2)->message, "no memory");
  EXPECT_FALSE(area.failure_of(0));
}

TEST(SharedArea, ReachesForkedProcesses) {
  SharedArea area = SharedArea::create(2).value();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::vector<std::byte> id(SharedArea::kIdBytes, std::byte{9});
    area.put_id(id);
    double value[] = {5};
    const bool worked = area.make_control(0)->fold(value, Fold::kMax) && value[0] == 7;
    area.give_up(0, fail(Code::kTimeout, "said by the child"));
    _exit(worked ? 0 : 1);
  }
  std::vector<std::byte> id(SharedArea::kIdBytes);
  ASSERT_TRUE(area.wait_id(id));
  EXPECT_EQ(id.back(), std::byte{9});
  double value[] = {7};
  EXPECT_TRUE(area.make_control(1)->fold(value, Fold::kMax));
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(area.failure_of(0)->message, "said by the child");
}

TEST(SharedArea, WaitForTheIdEndsWhenWorkerZeroGaveUp) {
  SharedArea area = SharedArea::create(2).value();
  area.give_up(0, fail(Code::kSystemError, "x"));
  std::vector<std::byte> id(SharedArea::kIdBytes);
  EXPECT_FALSE(area.wait_id(id));
}

}  // namespace
}  // namespace plexus::perf
