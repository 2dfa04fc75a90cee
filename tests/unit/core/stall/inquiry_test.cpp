// SPDX-License-Identifier: Apache-2.0
// Inquiries among simulated ranks: answers are complete, small and reach the root, whoever is
// silent.
#include "core/stall/inquiry.hpp"

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/stall/verdict.hpp"

namespace plexus {
namespace {

using std::chrono::milliseconds;

/// Ranks whose messages arrive in order, at once. Time passes in steps.
class Ranks {
 public:
  explicit Ranks(int count) : statuses(static_cast<size_t>(count)) {
    for (int rank = 0; rank < count; ++rank) {
      statuses[static_cast<size_t>(rank)].rank = rank;
      parts_.push_back(std::make_unique<Inquiries>(
          rank, count,
          Inquiries::Surroundings{
              .send =
                  [this, rank](int to, const InquiryMessage& message) {
                    const std::string bytes = encode(message);
                    most_bytes = std::max(most_bytes, bytes.size());
                    ++messages;
                    under_way_.push_back({rank, to, bytes});
                  },
              .look = [this, rank] { return statuses[static_cast<size_t>(rank)]; },
              .conclude =
                  [this, rank](uint64_t id, const StatusSummary& summary) {
                    concluded.push_back(summary);
                    parts_[static_cast<size_t>(rank)]->broadcast(id, "a verdict");
                  },
              .hear =
                  [this, rank](std::string_view sentence) {
                    EXPECT_EQ(sentence, "a verdict");
                    EXPECT_TRUE(heard.insert(rank).second) << "twice by " << rank;
                  }}));
    }
  }

  void start(int rank, uint64_t id, milliseconds time = Inquiries::kTime) {
    parts_[static_cast<size_t>(rank)]->start(id, now_, time);
    deliver();
  }
  void pass(milliseconds time) {
    const auto end = now_ + time;
    while (now_ < end) {
      now_ += milliseconds(100);
      for (size_t rank = 0; rank < parts_.size(); ++rank) {
        if (silent.count(static_cast<int>(rank)) == 0) {
          parts_[rank]->tick(now_);
        }
      }
      deliver();
    }
  }
  [[nodiscard]] bool any() const {
    return std::any_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->any(); });
  }

  std::vector<RankStatus> statuses;
  std::set<int> silent;
  std::set<int> left;
  std::vector<StatusSummary> concluded;
  std::set<int> heard;
  size_t messages = 0;
  size_t most_bytes = 0;

 private:
  struct UnderWay {
    int from;
    int to;
    std::string bytes;
  };
  void deliver() {
    for (; !under_way_.empty(); under_way_.pop_front()) {
      const UnderWay& each = under_way_.front();
      if (left.count(each.to) != 0) {
        parts_[static_cast<size_t>(each.from)]->skip(each.to, now_);
      } else if (silent.count(each.to) == 0) {
        const auto message = decode_inquiry(each.bytes, static_cast<int>(parts_.size()));
        ASSERT_TRUE(message.has_value());
        parts_[static_cast<size_t>(each.to)]->take(each.from, *message, now_);
      }
    }
  }

  std::vector<std::unique_ptr<Inquiries>> parts_;
  std::deque<UnderWay> under_way_;
  Clock::time_point now_{std::chrono::hours(1)};
};

uint64_t count_all(const StatusSummary& summary) {
  uint64_t count = summary.others;
  for (const StatusClass& each : summary.classes) {
    count += each.count;
  }
  return count;
}

TEST(Inquiries, ReachAllRanksFromAnyOne) {
  for (const int count : {1, 2, 17, 300}) {
    Ranks ranks(count);
    ranks.start(count / 2, 7);
    ASSERT_EQ(ranks.concluded.size(), 1U) << count;
    EXPECT_EQ(count_all(ranks.concluded[0]), static_cast<uint64_t>(count));
    EXPECT_EQ(ranks.concluded[0].others, 0U);
    EXPECT_EQ(ranks.heard.size(), static_cast<size_t>(count) - 1);
    EXPECT_EQ(ranks.messages, 4U * (static_cast<size_t>(count) - 1));
    ranks.pass(milliseconds(100));
    EXPECT_FALSE(ranks.any()) << "nothing is kept";
  }
}

TEST(Inquiries, FindTheSilentAndAskThoseBelow) {
  Ranks ranks(600);
  ranks.silent = {1, 20, 337};  // in the tree of 0: two inner ones and a leaf
  ranks.start(0, 7);
  ranks.pass(Inquiries::kTime);
  ASSERT_EQ(ranks.concluded.size(), 1U);
  const StatusSummary& summary = ranks.concluded[0];
  EXPECT_EQ(count_all(summary), 600U);
  EXPECT_EQ(summary.others, 0U);
  ASSERT_EQ(summary.classes.front().examples.front().activity, RankActivity::kSilent);
  EXPECT_EQ(summary.classes.front().count, 3U);
  EXPECT_EQ(ranks.heard.size(), 596U);
}

TEST(Inquiries, OfThoseInAHurryFindTheSilentSoon) {
  Ranks ranks(40);
  ranks.silent = {3};
  ranks.start(0, 7, Inquiries::kShortTime);
  ranks.pass(milliseconds(400));
  EXPECT_TRUE(ranks.concluded.empty()) << "it may still answer";
  ranks.pass(milliseconds(200));
  ASSERT_EQ(ranks.concluded.size(), 1U);
  EXPECT_EQ(ranks.concluded[0].classes.front().examples.front().rank, 3);
  EXPECT_EQ(ranks.concluded[0].classes.front().examples.front().activity, RankActivity::kSilent);
}

TEST(Inquiries, PassByRanksThatHaveLeft) {
  Ranks ranks(40);
  ranks.left = {1, 2};
  ranks.start(0, 7);
  ASSERT_EQ(ranks.concluded.size(), 1U);
  EXPECT_EQ(count_all(ranks.concluded[0]), 38U);
  EXPECT_EQ(ranks.heard.size(), 37U);
}

TEST(Inquiries, SeveralAtOnceDoNotDisturbEachOther) {
  Ranks ranks(50);
  ranks.silent = {3};
  ranks.start(0, 7);
  ranks.start(9, 7);
  EXPECT_TRUE(ranks.concluded.empty());
  ranks.heard.clear();
  ranks.silent.insert(0);  // the root stops: the other one finds that
  ranks.pass(Inquiries::kTime);
  ASSERT_EQ(ranks.concluded.size(), 1U);
  EXPECT_EQ(count_all(ranks.concluded[0]), 50U);
  ranks.pass(milliseconds(30'000));
  ranks.silent.clear();
  ranks.pass(milliseconds(100));
  EXPECT_FALSE(ranks.any()) << "what has no verdict is forgotten too";
}

TEST(Inquiries, AnswersStaySmallWhateverRanksDo) {
  Ranks ranks(5000);
  for (RankStatus& status : ranks.statuses) {
    const auto number = static_cast<uint64_t>(status.rank);
    status.activity = number % 3 == 0 ? RankActivity::kInPlugin : RankActivity::kOutside;
    status.has_call = true;
    status.call.sequence = number;
    status.call.hash = static_cast<uint32_t>(number);
    status.where = std::string(kWhereBytesMax, static_cast<char>('a' + number % 26));
  }
  ranks.start(0, 7);
  ASSERT_EQ(ranks.concluded.size(), 1U);
  EXPECT_EQ(count_all(ranks.concluded[0]), 5000U);
  EXPECT_LE(ranks.concluded[0].classes.size(), kClassesMax);
  EXPECT_LT(ranks.most_bytes, 32U * 1024);
}

TEST(StatusSummary, SurvivesItsEncoding) {
  StatusSummary summary;
  summary.add({.rank = 0, .peer = 3, .lost_to = 3, .where = "x"});
  summary.others = 4;
  const auto decoded = decode_summary(encode(summary), 4);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->others, 4U);
  ASSERT_NE(decoded->find(0), nullptr);
  EXPECT_EQ(decoded->find(0)->peer, 3);
  EXPECT_EQ(decoded->find(0)->lost_to, 3);
}

TEST(StatusSummary, WithRanksThatThereAreNotIsRefused) {
  const auto is_taken = [](const RankStatus& status) {
    StatusSummary summary;
    summary.add(status);
    return decode_summary(encode(summary), 4).has_value();
  };
  EXPECT_TRUE(is_taken({.rank = 3, .peer = -1, .lost_to = -1}));
  EXPECT_FALSE(is_taken({.rank = 4}));
  EXPECT_FALSE(is_taken({.rank = -1}));
  EXPECT_FALSE(is_taken({.rank = 0, .peer = 4}));
  EXPECT_FALSE(is_taken({.rank = 0, .peer = -2}));
  EXPECT_FALSE(is_taken({.rank = 0, .lost_to = 4}));
  EXPECT_FALSE(is_taken({.rank = 0, .lost_to = -2}));
}

TEST(StatusSummary, KeepsRanksApartThatLoseMessages) {
  StatusSummary summary;
  summary.add({.rank = 0});
  summary.add({.rank = 1});
  summary.add({.rank = 2, .lost_to = 0});
  ASSERT_EQ(summary.classes.size(), 2U);
  EXPECT_EQ(summary.classes[0].count + summary.classes[1].count, 3U);
}

TEST(InquiryMessage, BytesThatAreNoneAreRefused) {
  StatusSummary summary;
  summary.add({.rank = 3, .peer = 1, .where = "x"});
  const std::string answer = encode(summary);
  EXPECT_TRUE(decode_summary(answer, 4).has_value());
  EXPECT_FALSE(decode_summary(answer, 3).has_value()) << "no such rank";
  EXPECT_FALSE(decode_summary(answer + "x", 4).has_value());
  for (size_t size = 0; size < answer.size(); ++size) {
    EXPECT_FALSE(decode_summary(answer.substr(0, size), 4).has_value()) << size;
  }
  const std::string question = encode(InquiryMessage{.root = 3, .id = 9, .payload = answer});
  const auto decoded = decode_inquiry(question, 4);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->root, 3);
  EXPECT_EQ(decoded->id, 9U);
  EXPECT_EQ(decoded->payload, answer);
  EXPECT_FALSE(decode_inquiry(question, 3).has_value()) << "no such rank";
  for (size_t size = 0; size < question.size(); ++size) {
    EXPECT_FALSE(decode_inquiry(question.substr(0, size), 4).has_value()) << size;
  }
}

TEST(InquiryMessage, StepsAndTimesHaveBounds) {
  const auto is_taken = [](const InquiryMessage& message) {
    return decode_inquiry(encode(message), 4).has_value();
  };
  EXPECT_TRUE(is_taken({.step = InquiryStep::kVerdict, .time_ms = 10'000}));
  EXPECT_FALSE(is_taken({.step = static_cast<InquiryStep>(4)}));
  EXPECT_FALSE(is_taken({.time_ms = 10'001}));
  EXPECT_FALSE(is_taken({.root = -1}));
  std::string other = encode(InquiryMessage{});
  other[0] ^= 1;
  EXPECT_FALSE(decode_inquiry(other, 4).has_value());
  const auto cut = decode_inquiry(encode(InquiryMessage{.payload = std::string(60'001, 'x')}), 4);
  EXPECT_EQ(cut.value().payload.size(), 60'000U);
}

/// Rank 2 of 40, with the questions and answers of others made by the test. Rank 0 asks: below
/// rank 2 are 33 to 39.
class OneRank : public testing::Test {
 protected:
  struct Sent {
    int to;
    InquiryMessage message;
  };
  void take(int from, InquiryStep step, std::string payload = {}, uint32_t time_ms = 8'000) {
    take_of(0, 7, from, step, std::move(payload), time_ms);
  }
  void take_of(int root,
               uint64_t id,
               int from,
               InquiryStep step,
               std::string payload = {},
               uint32_t time_ms = 8'000) {
    part_.take(
        from,
        {.step = step, .time_ms = time_ms, .root = root, .id = id, .payload = std::move(payload)},
        now_);
  }
  void answer(int from) {
    StatusSummary summary;
    summary.add({.activity = RankActivity::kOutside, .rank = from});
    take(from, InquiryStep::kAnswer, encode(summary));
  }
  void pass(milliseconds time) {
    now_ += time;
    part_.tick(now_);
  }
  /// What was sent with this step since the last call.
  std::vector<Sent> sent(InquiryStep step) {
    std::vector<Sent> found;
    for (const Sent& each : sent_) {
      if (each.message.step == step) {
        found.push_back(each);
      }
    }
    std::erase_if(sent_, [&](const Sent& each) { return each.message.step == step; });
    return found;
  }
  /// The summary that went to rank 0; nullopt: none did.
  std::optional<StatusSummary> answered() {
    const auto found = sent(InquiryStep::kAnswer);
    EXPECT_LE(found.size(), 1U);
    if (found.empty()) {
      return std::nullopt;
    }
    EXPECT_EQ(found[0].to, 0);
    return decode_summary(found[0].message.payload, 40);
  }

  std::vector<Sent> sent_;
  std::vector<std::string> heard_;
  std::vector<StatusSummary> concluded_;
  Clock::time_point now_{std::chrono::hours(1)};
  Inquiries part_{
      2,
      40,
      {.send =
           [this](int to, const InquiryMessage& m) {
             sent_.push_back({to, m});
           },
       .look = [] { return RankStatus{.activity = RankActivity::kRunning, .rank = 2}; },
       .conclude = [this](uint64_t, const StatusSummary& s) { concluded_.push_back(s); },
       .hear = [this](std::string_view verdict) { heard_.emplace_back(verdict); }}};
};

TEST_F(OneRank, AsksThoseBelowItForASecondLess) {
  take(0, InquiryStep::kAsk);
  const auto heard = sent(InquiryStep::kHeard);
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(heard[0].to, 0);
  EXPECT_EQ(heard[0].message.id, 7U);
  const auto asked = sent(InquiryStep::kAsk);
  ASSERT_EQ(asked.size(), 7U);
  EXPECT_EQ(asked.front().to, 33);
  EXPECT_EQ(asked.back().to, 39);
  EXPECT_EQ(asked.front().message.time_ms, 7'000U);
  take(0, InquiryStep::kAsk);
  EXPECT_EQ(sent(InquiryStep::kHeard).size(), 1U);
  EXPECT_TRUE(sent(InquiryStep::kAsk).empty()) << "it has asked";
  take_of(0, 8, 0, InquiryStep::kAsk, "", 1'200);
  EXPECT_EQ(sent(InquiryStep::kAsk).front().message.time_ms, 500U) << "at least";
}

TEST_F(OneRank, AnswersWhenAllBelowHaveAnswered) {
  take(0, InquiryStep::kAsk);
  for (int below = 33; below < 40; ++below) {
    EXPECT_FALSE(answered().has_value());
    answer(below);
    answer(below);  // counts once
  }
  const auto summary = answered();
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(count_all(*summary), 8U);
  answer(33);
  pass(milliseconds(5'000));
  EXPECT_FALSE(answered().has_value()) << "once";
}

TEST_F(OneRank, TakesAnswersOfThoseThatItAskedOnly) {
  take(0, InquiryStep::kAsk);
  for (int rank = 3; rank < 33; ++rank) {
    answer(rank);
  }
  for (int below = 33; below < 39; ++below) {
    take(below, InquiryStep::kAnswer, "nonsense");
  }
  EXPECT_FALSE(answered().has_value());
  answer(39);
  EXPECT_EQ(count_all(answered().value()), 2U) << "of the other six nothing is known";
}

TEST_F(OneRank, OneThatDoesNotConfirmInTwoSecondsIsSilent) {
  take(0, InquiryStep::kAsk);
  for (int below = 33; below < 39; ++below) {
    answer(below);
  }
  pass(milliseconds(1'999));
  EXPECT_FALSE(answered().has_value());
  pass(milliseconds(1));
  const auto summary = answered();
  ASSERT_TRUE(summary.has_value());
  ASSERT_NE(summary->find(39), nullptr);
  EXPECT_EQ(summary->find(39)->activity, RankActivity::kSilent);
  EXPECT_EQ(count_all(*summary), 8U);
}

TEST_F(OneRank, OneThatHasConfirmedHasUntilTheEnd) {
  take(0, InquiryStep::kAsk);
  for (int below = 33; below < 39; ++below) {
    answer(below);
  }
  take(39, InquiryStep::kHeard);
  pass(milliseconds(7'999));
  EXPECT_FALSE(answered().has_value());
  pass(milliseconds(1));
  const auto summary = answered();
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->find(39), nullptr);
  EXPECT_EQ(summary->others, 1U);
}

TEST_F(OneRank, OneThatHasLeftIsPassedBy) {
  take(0, InquiryStep::kAsk);
  for (int below = 33; below < 39; ++below) {
    answer(below);
  }
  part_.skip(20, now_);  // not below this one
  EXPECT_FALSE(answered().has_value());
  part_.skip(39, now_);
  EXPECT_EQ(count_all(answered().value()), 7U);
}

TEST_F(OneRank, HearsTheVerdictOfTheOneAboveAndPassesItOn) {
  take(0, InquiryStep::kAsk);
  answer(33);
  take(34, InquiryStep::kHeard);
  take(33, InquiryStep::kVerdict, "false");
  EXPECT_TRUE(heard_.empty()) << "it is below";
  take(0, InquiryStep::kVerdict, "true");
  EXPECT_EQ(heard_, std::vector<std::string>({"true"}));
  const auto passed = sent(InquiryStep::kVerdict);
  ASSERT_EQ(passed.size(), 2U) << "to those that have heard the question";
  EXPECT_EQ(passed[0].to, 33);
  EXPECT_EQ(passed[1].to, 34);
  EXPECT_EQ(passed[0].message.payload, "true");
  EXPECT_FALSE(part_.any());
}

TEST_F(OneRank, ForgetsAnInquiryWithoutAVerdictAfterTwentySeconds) {
  take(0, InquiryStep::kAsk);
  pass(milliseconds(19'999));
  EXPECT_TRUE(part_.any());
  pass(milliseconds(1));
  EXPECT_FALSE(part_.any());
}

TEST_F(OneRank, HasAPartInSixtyFourInquiriesAtMostAndInNoneAsItsRoot) {
  take_of(2, 7, 0, InquiryStep::kAsk);
  EXPECT_FALSE(part_.any());
  for (uint64_t id = 0; id < 64; ++id) {
    take_of(0, id, 0, InquiryStep::kAsk);
    EXPECT_EQ(sent(InquiryStep::kAsk).size(), 7U) << id;
  }
  take_of(0, 64, 0, InquiryStep::kAsk);
  EXPECT_TRUE(sent(InquiryStep::kAsk).empty());
  EXPECT_EQ(sent(InquiryStep::kHeard).size(), 66U) << "all know that it lives";
}

TEST_F(OneRank, AsTheRootItAsksAndTellsThoseThatHaveHeard) {
  part_.start(5, now_);
  const auto asked = sent(InquiryStep::kAsk);
  ASSERT_EQ(asked.size(), 16U);
  EXPECT_EQ(asked.front().to, 3);
  EXPECT_EQ(asked.back().to, 18);
  EXPECT_EQ(asked.front().message.time_ms, 9'000U);
  EXPECT_EQ(asked.front().message.root, 2);
  take_of(2, 5, 4, InquiryStep::kHeard);
  part_.broadcast(6, "another's");
  EXPECT_TRUE(sent(InquiryStep::kVerdict).empty());
  pass(milliseconds(10'000));
  ASSERT_EQ(concluded_.size(), 1U);
  part_.broadcast(5, "it");
  const auto told = sent(InquiryStep::kVerdict);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].to, 4);
  EXPECT_EQ(told[0].message.payload, "it");
  pass(milliseconds(0));
  EXPECT_FALSE(part_.any()) << "it is over";
}

}  // namespace
}  // namespace plexus
