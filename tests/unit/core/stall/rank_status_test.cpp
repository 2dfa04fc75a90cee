// SPDX-License-Identifier: Apache-2.0
#include "core/stall/rank_status.hpp"

#include <functional>

#include <gtest/gtest.h>

#include "kernels/layout/collective.hpp"

namespace plexus {
namespace {

constexpr int kRanks = 100;

RankStatus in_call(int rank, Collective collective, uint64_t sequence) {
  RankStatus status;
  status.activity = RankActivity::kWaiting;
  status.rank = rank;
  status.has_call = true;
  status.call.collective = static_cast<uint8_t>(collective);
  status.call.sequence = sequence;
  return status;
}

StatusSummary summary_of(const std::vector<RankStatus>& statuses) {
  StatusSummary summary;
  for (const RankStatus& status : statuses) {
    summary.add(status);
  }
  return summary;
}

TEST(StatusSummary, RanksOfAClassAreCountedAndTheLowestEightAreKept) {
  StatusSummary summary;
  for (int rank = 19; rank >= 10; --rank) {
    summary.add(in_call(rank, Collective::kAllReduce, 5));
  }
  ASSERT_EQ(summary.classes.size(), 1U);
  EXPECT_EQ(summary.classes[0].count, 10U);
  ASSERT_EQ(summary.classes[0].examples.size(), 8U);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(summary.classes[0].examples[i].rank, 10 + static_cast<int>(i));
  }
  EXPECT_EQ(summary.find(17)->rank, 17);
  EXPECT_EQ(summary.find(18), nullptr);
}

TEST(StatusSummary, RanksThatDoTheSameAreOfOneClass) {
  const RankStatus one = in_call(0, Collective::kAllReduce, 5);
  const auto classes = [&](RankStatus base, const std::function<void(RankStatus&)>& change) {
    RankStatus other = base;
    other.rank = 1;
    change(other);
    return summary_of({base, other}).classes.size();
  };
  EXPECT_EQ(classes(one, [](RankStatus& s) { s.peer = 7; }), 1U);
  EXPECT_EQ(classes(one, [](RankStatus& s) { s.seconds = 7; }), 1U);
  EXPECT_EQ(classes(one, [](RankStatus& s) { s.where = "elsewhere"; }), 1U);
  EXPECT_EQ(classes(one, [](RankStatus& s) { s.activity = RankActivity::kRunning; }), 2U);
  EXPECT_EQ(classes(one, [](RankStatus& s) { s.is_awaited = true; }), 2U);
  EXPECT_EQ(classes(one, [](RankStatus& s) { s.lost_to = 0; }), 2U);
  EXPECT_EQ(classes(one, [](RankStatus& s) { s.held_up = "by a card"; }), 2U);
  EXPECT_EQ(classes(one, [](RankStatus& s) { s.has_call = false; }), 2U);
  EXPECT_EQ(classes(one, [](RankStatus& s) { s.call.collective = 1; }), 2U);
  EXPECT_EQ(classes(one, [](RankStatus& s) { s.call.sequence = 6; }), 2U);
  EXPECT_EQ(classes(one, [](RankStatus& s) { s.call.hash = 6; }), 2U);
  const RankStatus message = in_call(0, Collective::kSend, 5);
  EXPECT_EQ(classes(message, [](RankStatus& s) { s.call.sequence = s.call.hash = 6; }), 1U);
  RankStatus inside = one;
  inside.activity = RankActivity::kInPlugin;
  EXPECT_EQ(classes(inside, [](RankStatus& s) { s.where = "isend"; }), 2U);
  RankStatus unknown = one;
  unknown.call.collective = 200;
  EXPECT_EQ(classes(unknown, [](RankStatus& s) { s.call.collective = kCollectiveCount; }), 1U);
  unknown.call.collective = kCollectiveCount - 1;
  EXPECT_EQ(classes(unknown, [](RankStatus& s) { s.call.collective = kCollectiveCount; }), 2U);
}

TEST(StatusSummary, TheMostSuspiciousTwelveClassesAreKept) {
  StatusSummary summary;
  for (int rank = 0; rank < 14; ++rank) {
    summary.add(in_call(rank, Collective::kAllReduce, static_cast<uint64_t>(20 - rank)));
    summary.add(in_call(rank + 50, Collective::kAllReduce, static_cast<uint64_t>(20 - rank)));
  }
  ASSERT_EQ(summary.classes.size(), 12U);
  EXPECT_EQ(summary.others, 4U) << "both ranks of two classes";
  EXPECT_EQ(summary.classes.front().examples.front().call.sequence, 7U);
  EXPECT_EQ(summary.classes.back().examples.front().call.sequence, 18U);
  RankStatus silent;
  silent.activity = RankActivity::kSilent;
  summary.add(silent);
  EXPECT_EQ(summary.classes.front().examples.front().activity, RankActivity::kSilent);
  EXPECT_EQ(summary.others, 6U);
  StatusSummary more;
  more.others = 3;
  summary.merge(more);
  EXPECT_EQ(summary.others, 9U);
}

TEST(StatusSummary, IsTheSameOnTheOtherSide) {
  RankStatus status{.activity = RankActivity::kInPlugin,
                    .rank = 99,
                    .peer = 98,
                    .lost_to = 97,
                    .seconds = 12,
                    .collectives = 34,
                    .has_call = true,
                    .is_awaited = true,
                    .where = std::string(300, 'w'),
                    .held_up = "by a card"};
  status.call.sequence = 56;
  status.call.hash = 78;
  StatusSummary summary = summary_of({status, RankStatus{}});
  summary.others = 100;
  const auto decoded = decode_summary(encode(summary), kRanks);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->others, 100U);
  ASSERT_EQ(decoded->classes.size(), 2U);
  const RankStatus& found = decoded->classes[0].examples[0];
  EXPECT_EQ(found.activity, RankActivity::kInPlugin);
  EXPECT_EQ(found.rank, 99);
  EXPECT_EQ(found.peer, 98);
  EXPECT_EQ(found.lost_to, 97);
  EXPECT_EQ(found.seconds, 12U);
  EXPECT_EQ(found.collectives, 34U);
  EXPECT_TRUE(found.has_call && found.is_awaited);
  EXPECT_EQ(found.call.sequence, 56U);
  EXPECT_EQ(found.call.hash, 78U);
  EXPECT_EQ(found.where, std::string(250, 'w'));
  EXPECT_EQ(found.held_up, "by a card");
  const RankStatus& other = decoded->classes[1].examples[0];
  EXPECT_EQ(other.peer, -1);
  EXPECT_EQ(other.lost_to, -1);
  EXPECT_FALSE(other.has_call || other.is_awaited);
}

/// Whether a summary of one rank is taken with this change.
bool is_taken(const std::function<void(StatusSummary&, RankStatus&)>& change) {
  StatusSummary summary = summary_of({RankStatus{}});
  change(summary, summary.classes[0].examples[0]);
  return decode_summary(encode(summary), kRanks).has_value();
}

TEST(StatusSummary, RanksAndActivitiesThatCannotBeAreRefused) {
  const auto with = [](int32_t RankStatus::*field, int32_t value) {
    return is_taken([&](StatusSummary&, RankStatus& status) { status.*field = value; });
  };
  EXPECT_TRUE(with(&RankStatus::rank, 99));
  EXPECT_FALSE(with(&RankStatus::rank, 100));
  EXPECT_FALSE(with(&RankStatus::rank, -1));
  for (int32_t RankStatus::*const field : {&RankStatus::peer, &RankStatus::lost_to}) {
    EXPECT_TRUE(with(field, -1));
    EXPECT_TRUE(with(field, 99));
    EXPECT_FALSE(with(field, 100));
    EXPECT_FALSE(with(field, -2));
  }
  const auto with_activity = [](uint8_t value) {
    return is_taken([&](StatusSummary&, RankStatus& status) {
      status.activity = static_cast<RankActivity>(value);
    });
  };
  EXPECT_TRUE(with_activity(6));
  EXPECT_FALSE(with_activity(7));
}

TEST(StatusSummary, CountsThatCannotBeAreRefused) {
  const auto with_count = [](uint64_t count) {
    return is_taken([&](StatusSummary& summary, RankStatus&) { summary.classes[0].count = count; });
  };
  EXPECT_FALSE(with_count(0));
  EXPECT_TRUE(with_count(1));
  EXPECT_TRUE(with_count(100));
  EXPECT_FALSE(with_count(101));
  const auto with_examples = [](size_t examples, uint64_t count) {
    return is_taken([&](StatusSummary& summary, RankStatus&) {
      summary.classes[0].examples.resize(examples);
      summary.classes[0].count = count;
    });
  };
  EXPECT_FALSE(with_examples(0, 1));
  EXPECT_TRUE(with_examples(8, 8));
  EXPECT_FALSE(with_examples(8, 7)) << "fewer ranks than examples";
  EXPECT_FALSE(with_examples(9, 9));
  EXPECT_TRUE(is_taken([](StatusSummary& summary, RankStatus&) { summary.others = 100; }));
  EXPECT_FALSE(is_taken([](StatusSummary& summary, RankStatus&) { summary.others = 101; }));
  const auto with_classes = [](size_t classes) {
    return is_taken([&](StatusSummary& summary, RankStatus&) {
      summary.classes.resize(classes, summary.classes[0]);
    });
  };
  EXPECT_TRUE(with_classes(0));
  EXPECT_TRUE(with_classes(12));
  EXPECT_FALSE(with_classes(13));
}

TEST(StatusSummary, BytesThatAreTooFewOrTooManyAreRefused) {
  const std::string bytes = encode(summary_of({RankStatus{}}));
  EXPECT_TRUE(decode_summary(bytes, kRanks).has_value());
  EXPECT_FALSE(decode_summary(bytes + '\0', kRanks).has_value());
  EXPECT_FALSE(decode_summary(bytes.substr(1), kRanks).has_value());
  EXPECT_FALSE(decode_summary(bytes.substr(0, bytes.size() - 1), kRanks).has_value());
}

TEST(StatusSummary, AClassOfUnequalRanksIsSorted) {
  StatusSummary mixed = summary_of({in_call(3, Collective::kAllReduce, 9)});
  mixed.classes[0].examples.push_back(in_call(4, Collective::kAllReduce, 2));
  mixed.classes[0].count = 7;
  const auto decoded = decode_summary(encode(mixed), kRanks);
  ASSERT_TRUE(decoded.has_value());
  ASSERT_EQ(decoded->classes.size(), 2U);
  EXPECT_EQ(decoded->classes[0].examples[0].rank, 4);
  EXPECT_EQ(decoded->classes[0].count, 6U) << "those without an example are of the first";
  EXPECT_EQ(decoded->classes[1].count, 1U);
}

}  // namespace
}  // namespace plexus
