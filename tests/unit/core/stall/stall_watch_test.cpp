// SPDX-License-Identifier: Apache-2.0
// Two ranks of one process in a watch: who is in it, what it reports of them, and how long it uses
// them. What is concluded of waits is tested beside it (circle_search, inquiry, verdict).
#include "core/stall/stall_watch.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/layout/collective.hpp"

namespace plexus {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::chrono::seconds kPatience{60};
constexpr uint64_t kGroup = 7;

class StallWatchTest : public testing::Test {
 protected:
  StallWatchTest() {
    for (int rank = 0; rank < 2; ++rank) {
      watch_.add(member(kGroup, rank));
    }
  }
  StallMember member(uint64_t group, int rank) {
    const auto place = static_cast<size_t>(rank);
    return {.group = group,
            .rank = rank,
            .nranks = 2,
            .exchange = exchanges_[place].get(),
            .calls = &logs_[place],
            .thread = &thread_,
            .fail = [](const Error&) {},
            .is_busy = [this, place] { return busy_[place].load(); },
            .look = [] { return MemberState{}; },
            .host = "here",
            .address = "",
            .file = ""};
  }
  /// What the watch reports of `rank`; null: nothing.
  json report_of(int rank) {
    for (const json& each : json::parse(watch_.report())) {
      if (each["rank"] == rank) {
        return each;
      }
    }
    return {};
  }
  std::string activity_of(int rank) { return report_of(rank)["activity"]; }
  static CallRecord call(uint64_t sequence) {
    CallRecord record{};
    record.sequence = sequence;
    record.count = 5;
    record.collective = static_cast<uint8_t>(Collective::kAllReduce);
    return record;
  }
  static Standstill waiting_for(int peer) {
    Standstill standstill;
    standstill.waits.push_back(
        {.call = call(0), .peer = peer, .certain = true, .where = "connection 3"});
    return standstill;
  }

  std::vector<std::unique_ptr<Exchange>> exchanges_ = make_local_exchanges(2);
  std::array<CallLog, 2> logs_{CallLog(2), CallLog(2)};
  std::array<std::atomic<bool>, 2> busy_{};
  CallingThread thread_;
  StallWatch watch_;
};

TEST_F(StallWatchTest, ReportsItsMembersUntilTheyAreRemoved) {
  logs_[1].note_collective(call(0));
  EXPECT_EQ(report_of(0)["calls"], 0);
  const json report = report_of(1);
  EXPECT_EQ(report["comm"], "0x7");
  EXPECT_EQ(report["nranks"], 2);
  EXPECT_EQ(report["calls"], 1);
  ASSERT_EQ(report["recent"].size(), 1U);
  EXPECT_THAT(report["recent"][0].get<std::string>(), HasSubstr("all_reduce(count 5"));
  EXPECT_THAT(report["waits"], IsEmpty());
  watch_.remove(kGroup, 1);
  EXPECT_TRUE(report_of(1).is_null());
  EXPECT_FALSE(report_of(0).is_null());
  watch_.remove(kGroup, 1);  // again: nothing happens
  watch_.remove(kGroup, 0);
  EXPECT_EQ(watch_.report(), "[]");
}

TEST_F(StallWatchTest, AWaitLastsUntilTheRankMoves) {
  EXPECT_EQ(activity_of(0), "outside");
  watch_.on_stalled(kGroup, 0, waiting_for(1));
  const json waiting = report_of(0);
  EXPECT_EQ(waiting["activity"], "waiting");
  ASSERT_EQ(waiting["waits"].size(), 1U);
  EXPECT_EQ(waiting["waits"][0]["rank"], 1);
  EXPECT_EQ(waiting["waits"][0]["where"], "connection 3");
  EXPECT_EQ(activity_of(1), "outside") << "another rank's";
  watch_.on_moved(kGroup, 0);
  EXPECT_EQ(activity_of(0), "outside");
  EXPECT_THAT(report_of(0)["waits"], IsEmpty());
  busy_[0] = true;
  EXPECT_EQ(activity_of(0), "running");
}

TEST_F(StallWatchTest, ASplitIsAWaitToItsEnd) {
  {
    const StallWatch::Splitting splitting(watch_, kGroup, 1);
    EXPECT_EQ(activity_of(1), "splitting");
    EXPECT_EQ(activity_of(0), "outside");
  }
  EXPECT_EQ(activity_of(1), "outside");
  const auto left = decode_leave_record(watch_.leave_record(kGroup, 1, Departure::kStopped));
  ASSERT_TRUE(left.has_value());
  EXPECT_EQ(left->splits, 1U);
  EXPECT_EQ(left->how, Departure::kStopped);
}

TEST_F(StallWatchTest, LeaveRecordsSayWhatWasCalled) {
  logs_[0].note_collective(call(0));
  logs_[0].note_collective(call(1));
  const auto left = decode_leave_record(watch_.leave_record(kGroup, 0, Departure::kDestroyed));
  ASSERT_TRUE(left.has_value());
  EXPECT_EQ(left->collectives, 2U);
  EXPECT_EQ(left->splits, 0U);
  EXPECT_EQ(watch_.leave_record(kGroup, 2, Departure::kDestroyed), "") << "no such member";
}

TEST_F(StallWatchTest, NothingIsKeptOfWhoIsNoMember) {
  watch_.on_stalled(kGroup + 1, 0, waiting_for(1));
  watch_.on_moved(kGroup + 1, 0);
  const StallWatch::Splitting splitting(watch_, kGroup, 9);
  watch_.remove(kGroup + 1, 0);
  EXPECT_EQ(json::parse(watch_.report()).size(), 2U);
  EXPECT_EQ(activity_of(0), "outside");
}

TEST_F(StallWatchTest, VisitsOneMemberOfEachCommunicator) {
  watch_.add(member(kGroup + 1, 1));
  std::vector<uint64_t> groups;
  watch_.visit([&](const StallMember& each) { groups.push_back(each.group); });
  EXPECT_THAT(groups, ElementsAre(kGroup, kGroup + 1));
  const std::vector<KnownRank> known = list_known(watch_);
  ASSERT_EQ(known.size(), 4U);
  EXPECT_EQ(known[0].group, kGroup);
  EXPECT_EQ(known[3].group, kGroup + 1);
  EXPECT_EQ(known[3].rank, 1);
  watch_.remove(kGroup + 1, 1);
}

TEST_F(StallWatchTest, AMemberIsNotRemovedWhileItIsLookedAt) {
  std::promise<void> begins;
  std::promise<void> may_end;
  auto visit = std::async(std::launch::async, [&] {
    watch_.visit([&](const StallMember&) {
      begins.set_value();
      may_end.get_future().wait_for(kPatience);
    });
  });
  ASSERT_EQ(begins.get_future().wait_for(kPatience), std::future_status::ready);
  auto removal = std::async(std::launch::async, [this] { watch_.remove(kGroup, 0); });
  EXPECT_EQ(removal.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  may_end.set_value();
  EXPECT_EQ(removal.wait_for(kPatience), std::future_status::ready);
  visit.get();
  EXPECT_TRUE(report_of(0).is_null());
}

TEST_F(StallWatchTest, AnInquiryAsksAllRanksOfTheCommunicator) {
  watch_.on_stalled(kGroup, 1, waiting_for(0));
  const json answers = json::parse(watch_.inquire());
  ASSERT_EQ(answers.size(), 1U) << "one for each communicator";
  const std::string answer = answers[0].dump();
  EXPECT_THAT(answer, HasSubstr("\"waiting\""));
  EXPECT_THAT(answer, HasSubstr("\"outside\""));
}

TEST_F(StallWatchTest, ARollCallHasThisProcessAndItsRanks) {
  const JobRoll roll = watch_.call_roll(std::chrono::milliseconds(200));
  ASSERT_EQ(roll.processes.size(), 1U);
  EXPECT_EQ(roll.processes[0].host, "here");
  EXPECT_EQ(roll.processes[0].ranks.size(), 2U);
  EXPECT_EQ(roll.known.size(), 2U);
  EXPECT_EQ(roll.timeouts, 0U);
}

}  // namespace
}  // namespace plexus
