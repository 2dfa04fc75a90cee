// SPDX-License-Identifier: Apache-2.0
// Roll calls among simulated processes: whoever can be reached is in the answer, once, in time.
#include "core/stall/roll_call.hpp"

#include <deque>
#include <memory>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

/// Processes with ranks in groups; messages arrive in order, at once. Time passes in steps.
class Job {
 public:
  /// `groups[g][r]`: the process of rank r of group g.
  Job(size_t processes, std::vector<std::vector<size_t>> groups) : groups_(std::move(groups)) {
    for (size_t process = 0; process < processes; ++process) {
      parts_.push_back(std::make_unique<RollCalls>(RollCalls::Surroundings{
          .send =
              [this](const RollCalls::Key& from, int to, const RollMessage& message) {
                under_way_.push_back({from, to, encode(message)});
                ++messages;
              },
          .members = [this, process] { return members_of(process); },
          .look = [process] { return std::vector{std::to_string(process)}; },
          .conclude =
              [this](uint64_t /*id*/, const std::vector<std::string>& pieces, size_t late) {
                ++concluded;
                timeouts = late;
                for (const std::string& piece : pieces) {
                  EXPECT_TRUE(answered.insert(std::stoul(piece)).second) << piece << " twice";
                }
              }}));
    }
  }

  void ask(size_t process) {
    answered.clear();
    concluded = 0;
    asked_ = now_;
    parts_[process]->start(++ids_, milliseconds(400), now_);
    for (deliver(); concluded == 0 && now_ - asked_ < milliseconds(500); deliver()) {
      now_ += milliseconds(20);
      for (size_t each = 0; each < parts_.size(); ++each) {
        if (silent.count(each) == 0) {
          parts_[each]->tick(now_);
        }
      }
    }
    EXPECT_EQ(concluded, 1);
  }
  [[nodiscard]] milliseconds time() const {
    return std::chrono::duration_cast<milliseconds>(now_ - asked_);
  }

  std::set<size_t> silent;
  std::set<size_t> gone;
  std::set<size_t> answered;
  size_t timeouts = 0;
  size_t messages = 0;
  int concluded = 0;

 private:
  struct UnderWay {
    RollCalls::Key from;
    int to;
    std::string bytes;
  };
  std::map<RollCalls::Key, int> members_of(size_t process) const {
    std::map<RollCalls::Key, int> members;
    for (size_t group = 0; group < groups_.size(); ++group) {
      for (size_t rank = 0; rank < groups_[group].size(); ++rank) {
        if (groups_[group][rank] == process) {
          members[{group, static_cast<int>(rank)}] = static_cast<int>(groups_[group].size());
        }
      }
    }
    return members;
  }
  void deliver() {
    while (!under_way_.empty()) {
      const UnderWay each = std::move(under_way_.front());
      under_way_.pop_front();
      const auto& ranks = groups_[each.from.first];
      const size_t to = ranks[static_cast<size_t>(each.to)];
      const auto message = decode_roll_message(each.bytes);
      ASSERT_TRUE(message.has_value());
      if (gone.count(to) != 0) {
        parts_[ranks[static_cast<size_t>(each.from.second)]]->skip(each.from.first, each.to, now_);
      } else if (silent.count(to) == 0) {
        parts_[to]->take({each.from.first, each.to}, each.from.second, *message, now_);
      }
    }
  }

  std::vector<std::vector<size_t>> groups_;
  std::vector<std::unique_ptr<RollCalls>> parts_;
  std::deque<UnderWay> under_way_;
  Clock::time_point now_{std::chrono::seconds(100)};
  Clock::time_point asked_;
  uint64_t ids_ = 0;
};

std::vector<size_t> one_each(size_t count) {
  std::vector<size_t> ranks(count);
  for (size_t i = 0; i < count; ++i) {
    ranks[i] = i;
  }
  return ranks;
}

TEST(RollCall, AllAnswerAtOnceWhoeverAsks) {
  Job job(300, {one_each(300)});
  for (const size_t asker : {0, 16, 299}) {
    job.messages = 0;
    job.ask(asker);
    EXPECT_EQ(job.answered.size(), 300U);
    EXPECT_EQ(job.timeouts, 0U);
    EXPECT_EQ(job.time(), milliseconds(0));
    EXPECT_EQ(job.messages, 3 * 299U) << "a question, its confirmation and an answer for each";
  }
}

TEST(RollCall, ReachesProcessesThatShareNoCommunicatorWithTheAsker) {
  Job job(6, {{0, 1, 2}, {2, 3}, {3, 4, 5}, {5, 0}});
  job.ask(1);
  EXPECT_THAT(job.answered, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(job.timeouts, 0U);
}

TEST(RollCall, SeveralRanksOfAProcessAnswerOnce) {
  Job job(2, {{0, 0, 1, 1, 0, 1}, {1, 0}});
  job.ask(0);
  EXPECT_THAT(job.answered, ElementsAre(0, 1));
}

TEST(RollCall, GoesPastSilentRanksAndEndsInTime) {
  Job job(300, {one_each(300)});
  job.silent = {0, 1, 17};
  job.ask(5);
  EXPECT_EQ(job.answered.size(), 297U) << "those below them are asked directly";
  EXPECT_GT(job.timeouts, 0U);
  EXPECT_LE(job.time(), milliseconds(400));
}

TEST(RollCall, GoneRanksCostNoTime) {
  Job job(300, {one_each(300)});
  job.gone = {0, 3};
  job.ask(299);
  EXPECT_EQ(job.answered.size(), 298U);
  EXPECT_EQ(job.timeouts, 0U);
  EXPECT_EQ(job.time(), milliseconds(0));
}

TEST(RollCall, ALoneProcessAnswersItself) {
  Job job(1, {{0, 0, 0}});
  job.ask(0);
  EXPECT_THAT(job.answered, ElementsAre(0));
}

TEST(RollRecord, SurvivesItsBytes) {
  RollProcess process{.id = 7, .pid = 42, .host = "node1", .address = "10.0.0.1"};
  for (int rank = 0; rank < 100; ++rank) {
    RollRank one{.group = 9,
                 .nranks = 100,
                 .device = rank,
                 .state = {.error = 6,
                           .failovers = 3,
                           .resent = uint64_t{1} << 40,
                           .bad_input = {.call = 5, .text = "a NaN"},
                           .why = "gone"}};
    one.counts[2] = 5;
    one.bytes[9] = 6;
    one.arrivals = {{.number = 3, .inside_ns = 4, .period_ns = 5}};
    one.status = {.activity = RankActivity::kWaiting, .rank = rank, .peer = 1, .seconds = 3};
    process.ranks.push_back(std::move(one));
  }
  size_t ranks = 0;
  for (const std::string& piece : encode(process)) {
    EXPECT_LE(piece.size(), kPieceBytesMax);
    const auto decoded = decode_roll_process(piece);
    ASSERT_TRUE(decoded.has_value());
    EXPECT_EQ(decoded->address, "10.0.0.1");
    for (const RollRank& rank : decoded->ranks) {
      EXPECT_EQ(rank.status.rank, static_cast<int>(ranks++));
      EXPECT_EQ(rank.state.why, "gone");
      EXPECT_EQ(rank.state.bad_input.call, 5U);
      EXPECT_EQ(rank.state.bad_input.text, "a NaN");
      EXPECT_EQ(rank.state.failovers, 3U);
      EXPECT_EQ(rank.state.resent, uint64_t{1} << 40);
      EXPECT_EQ(rank.counts[2], 5U);
      EXPECT_EQ(rank.bytes[9], 6U);
      ASSERT_EQ(rank.arrivals.size(), 1U);
      EXPECT_EQ(rank.arrivals[0].period_ns, 5U);
    }
    EXPECT_FALSE(decode_roll_process(piece.substr(0, piece.size() - 1)).has_value());
  }
  EXPECT_EQ(ranks, 100U);
}

}  // namespace
}  // namespace plexus
