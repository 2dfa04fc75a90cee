// SPDX-License-Identifier: Apache-2.0
// The order of lanes that can proceed, and that misuse of the queue and of lanes ends the process.
#include <array>

#include <gtest/gtest.h>

#include "kernels/host/executor.hpp"

namespace plexus {
namespace {

/// Three lanes without steps.
class Lanes {
 public:
  Lanes() {
    program_.lanes.resize(kLanes);
    work_.program = &program_;
    work_.slot_bytes = 1024;
  }
  [[nodiscard]] Work& work() { return work_; }
  LaneRun make(int lane) { return {&work_, lane, nullptr}; }

 private:
  static constexpr size_t kLanes = 3;
  Program program_;
  Work work_;
};

TEST(RunQueue, IsFirstInFirstOutAndHasALaneOnce) {
  Lanes lanes;
  std::array<LaneRun, 2> runs{lanes.make(0), lanes.make(1)};
  RunQueue queue(1);
  for (LaneRun& run : runs) {
    queue.add(&run);
  }
  queue.push(&runs[1]);
  queue.push(&runs[0]);
  queue.push(&runs[1]);
  EXPECT_EQ(queue.pop(), &runs[1]);
  EXPECT_EQ(queue.pop(), &runs[0]);
  EXPECT_TRUE(queue.empty());
}

TEST(RunQueue, WakesTheLaneThatWaits) {
  Lanes lanes;
  LaneRun run = lanes.make(2);
  RunQueue queue(7);
  queue.add(&run);
  FifoEnd end{};
  end.waiter = 1;
  queue.notify(end);  // another engine's
  EXPECT_TRUE(queue.empty());
  end.engine = 7;
  queue.notify(end);
  EXPECT_FALSE(queue.empty());
  EXPECT_EQ(queue.pop(), &run);
}

TEST(LaneRunMisuse, EndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Lanes lanes;
  EXPECT_DEATH(lanes.make(3), "executor.cpp:.*lane: 3");
  lanes.work().element_bytes = 3;
  EXPECT_DEATH(lanes.make(0), "element_bytes.*: 3");
  lanes.work().element_bytes = 4;
  lanes.work().slot_bytes = 1026;
  EXPECT_DEATH(lanes.make(0), "slot_bytes.*: 1026, 4");
}

#ifdef PLEXUS_DEBUG_CHECKS

TEST(RunQueueMisuse, EndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Lanes lanes;
  LaneRun run = lanes.make(0);
  RunQueue queue(1);
  EXPECT_DEATH(static_cast<void>(queue.pop()), "empty");
  EXPECT_DEATH(queue.push(&run), "lane->index");
  FifoEnd end{};
  end.engine = 1;
  end.waiter = 5;
  EXPECT_DEATH(queue.notify(end), "waiter <= lanes_.size.*: 5, 0");
}

#endif  // PLEXUS_DEBUG_CHECKS

}  // namespace
}  // namespace plexus
