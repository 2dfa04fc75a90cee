// SPDX-License-Identifier: Apache-2.0
// Windows of calls: whole ones only, the same calls on all ranks, few where calls follow each other
// fast.
#include "core/engine/arrival_times.hpp"

#include <algorithm>

#include <gtest/gtest.h>

namespace plexus {
namespace {

using std::chrono::microseconds;

/// Makes calls of `inside`, one every `period`, each with as many numbers as `group`.
class Calls {
 public:
  void make(int count, microseconds inside, microseconds period, uint64_t group = 1) {
    for (int i = 0; i < count; ++i) {
      sequence_ += group;  // a call is noted behind its numbers
      if (times.wants(sequence_, group > 0)) {
        times.note(sequence_, now_, now_ + inside);
        ++timed;
      }
      now_ += period;
    }
  }
  [[nodiscard]] ArrivalWindow last() const {
    const auto windows = times.list();
    return windows.empty() ? ArrivalWindow{.number = UINT64_MAX}
                           : *std::max_element(
                                 windows.begin(), windows.end(),
                                 [](const auto& a, const auto& b) { return a.number < b.number; });
  }
  ArrivalTimes times;
  int timed = 0;

 private:
  uint64_t sequence_ = 0;
  std::chrono::steady_clock::time_point now_{std::chrono::seconds(5)};
};

TEST(ArrivalTimes, AreThereAfterTwentyCalls) {
  Calls calls;
  calls.make(20, microseconds(30), microseconds(100));
  const ArrivalWindow window = calls.last();
  EXPECT_EQ(window.number, 0U);
  EXPECT_EQ(window.inside_ns, 15 * 30'000U) << "the first call has number 1 here";
  EXPECT_EQ(window.period_ns, 15 * 100'000U);
  calls.make(16, microseconds(40), microseconds(200));
  EXPECT_EQ(calls.last().number, 1U);
}

TEST(ArrivalTimes, OfCallsThatFollowFastOneWindowIn32IsTimed) {
  Calls calls;
  calls.make(32 * 16 * 100, microseconds(1), microseconds(2));
  EXPECT_LT(calls.timed, 32 * 16 * 100 / 20);
  EXPECT_EQ(calls.last().number % 32, 0U);
  EXPECT_EQ(calls.last().inside_ns, 16 * 1000U);
  calls.make(32 * 16 * 2, microseconds(1), microseconds(1000));  // slow from now on: all are
  const int before = calls.timed;
  calls.make(100, microseconds(1), microseconds(1000));
  EXPECT_EQ(calls.timed, before + 100);
}

TEST(ArrivalTimes, MessagesAreTimedWhereCollectivesAre) {
  Calls calls;
  calls.make(100, microseconds(1), microseconds(2), 0);
  EXPECT_EQ(calls.timed, 0);
  calls.make(1, microseconds(30), microseconds(100));
  calls.make(2, microseconds(300), microseconds(400), 0);
  calls.make(16, microseconds(30), microseconds(100));
  EXPECT_EQ(calls.last().number, 0U);
  EXPECT_EQ(calls.last().inside_ns, 15 * 30'000U + 2 * 300'000U);
  calls.make(100'000, microseconds(1), microseconds(2), 0);
  EXPECT_LT(calls.timed, 2000) << "too many messages: the window is given up";
}

TEST(ArrivalTimes, GroupsOfCallsCountAsOne) {
  Calls calls;
  calls.make(32 * 16 * 100, microseconds(1), microseconds(2), 3);
  EXPECT_LT(calls.timed, 32 * 16 * 100 / 10);
  EXPECT_LE(calls.times.list().size(), ArrivalTimes::kWindows);
  EXPECT_FALSE(calls.times.list().empty());
  EXPECT_NEAR(static_cast<double>(calls.last().period_ns) / 2,
              static_cast<double>(calls.last().inside_ns), 1.0);
}

}  // namespace
}  // namespace plexus
