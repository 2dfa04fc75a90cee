// SPDX-License-Identifier: Apache-2.0
// Inquiries among simulated ranks: answers are complete, small and reach the root, whoever is
// silent.
#include "core/stall/inquiry.hpp"

#include <deque>
#include <memory>
#include <set>

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

  void start(int rank, uint64_t id) {
    parts_[static_cast<size_t>(rank)]->start(id, now_);
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

}  // namespace
}  // namespace plexus
