// SPDX-License-Identifier: Apache-2.0
// Whom a verdict names.
#include "core/stall/verdict.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/layout/collective.hpp"

namespace plexus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

CallRecord call_of(Collective collective, uint64_t sequence) {
  CallRecord call{};
  call.collective = static_cast<uint8_t>(collective);
  call.sequence = sequence;
  return call;
}

RankStatus waiting(int rank, int peer, uint64_t sequence = 5) {
  return {.activity = RankActivity::kWaiting,
          .rank = rank,
          .peer = peer,
          .seconds = 31,
          .collectives = sequence + 1,
          .has_call = true,
          .call = call_of(Collective::kAllReduce, sequence),
          .where = "net/Socket 0 > 0, channel 1, step 2 of 6"};
}

RankStatus outside(int rank, uint64_t collectives) {
  return {.rank = rank,
          .collectives = collectives,
          .has_call = true,
          .call = call_of(Collective::kBroadcast, collectives - 1)};
}

StallVerdict judge_for(const RankStatus& asker, const std::vector<RankStatus>& statuses) {
  StatusSummary summary;
  for (const RankStatus& status : statuses) {
    summary.add(status);
  }
  return judge({.group = 0x12,
                .nranks = static_cast<int>(statuses.size()),
                .status = asker,
                .process_of = [](int rank) { return "host:" + std::to_string(100 + rank); }},
               summary);
}

TEST(Verdict, NamesTheRankThatHasNotCalled) {
  const auto verdict = judge_for(waiting(0, 2), {waiting(0, 2), outside(1, 6), outside(2, 5)});
  EXPECT_EQ(verdict.cause, StallCause::kNotCalled);
  EXPECT_THAT(verdict.ranks, ElementsAre(2)) << "rank 1 has made the call and is done";
  EXPECT_THAT(verdict.sentence, HasSubstr("rank 0 has waited for 31 s in all_reduce("));
  EXPECT_THAT(verdict.sentence, HasSubstr("rank 2 (host:102) has not made that call"));
  EXPECT_THAT(verdict.sentence, HasSubstr("its last call was broadcast("));
  EXPECT_THAT(verdict.sentence, testing::Not(HasSubstr("ranks in all")));
  EXPECT_THAT(verdict.json, HasSubstr("\"cause\":\"not_called\""));
}

TEST(Verdict, AStoppedRankExplainsOthersThatAreLate) {
  const auto verdict =
      judge_for(waiting(0, 1),
                {waiting(0, 1), outside(1, 5), {.activity = RankActivity::kSilent, .rank = 2}});
  EXPECT_EQ(verdict.cause, StallCause::kStopped);
  EXPECT_THAT(verdict.ranks, ElementsAre(2));
  EXPECT_THAT(verdict.sentence, HasSubstr("rank 2 (host:102) does not answer"));
}

TEST(Verdict, NamesThePluginAndItsFunction) {
  const auto verdict = judge_for(waiting(0, 1), {waiting(0, 1),
                                                 {.activity = RankActivity::kInPlugin,
                                                  .rank = 1,
                                                  .seconds = 40,
                                                  .where = "connect of plugin acme"}});
  EXPECT_EQ(verdict.cause, StallCause::kInPlugin);
  EXPECT_THAT(verdict.sentence, HasSubstr("has been inside connect of plugin acme for 40 s"));
}

TEST(Verdict, OfMessagesOnlyThoseThatAreAwaited) {
  RankStatus asker = waiting(0, 1);
  asker.call = call_of(Collective::kRecv, 0);
  asker.call.root = 1;
  RankStatus idle = outside(2, 1);
  RankStatus wanted = outside(1, 1);
  wanted.is_awaited = true;
  const auto verdict = judge_for(asker, {asker, wanted, idle});
  EXPECT_EQ(verdict.cause, StallCause::kNotCalled);
  EXPECT_THAT(verdict.ranks, ElementsAre(1));
}

TEST(Verdict, WithoutASuspectNamesTheLink) {
  const auto verdict = judge_for(waiting(0, 2), {waiting(0, 2), waiting(1, 0), waiting(2, 1)});
  EXPECT_EQ(verdict.cause, StallCause::kLink);
  EXPECT_THAT(verdict.sentence, HasSubstr("all ranks have made the call"));
  EXPECT_THAT(verdict.sentence, HasSubstr("for rank 2 by net/Socket 0 > 0, channel 1"));
}

TEST(Verdict, NamesTheSenderOfAMessageThatDoesNotArrive) {
  RankStatus sender = waiting(1, 0);
  sender.lost_to = 2;
  const auto verdict = judge_for(waiting(0, 2), {waiting(0, 2), sender, waiting(2, 1)});
  EXPECT_EQ(verdict.cause, StallCause::kLink);
  EXPECT_THAT(verdict.ranks, ElementsAre(1));
  EXPECT_THAT(verdict.sentence,
              HasSubstr("rank 1 (host:101) has sent a message to rank 2 that does not arrive by "
                        "net/Socket 0 > 0"));
}

TEST(Verdict, NamesTheRankWhosePluginHoldsItUp) {
  RankStatus held = waiting(2, 1);
  held.held_up = "isend of plugin acme on device 0 (eth0) to rank 1 has no room for message 3";
  const auto verdict = judge_for(waiting(0, 2), {waiting(0, 2), waiting(1, 0), held});
  EXPECT_EQ(verdict.cause, StallCause::kLink);
  EXPECT_THAT(verdict.ranks, ElementsAre(2));
  EXPECT_THAT(verdict.sentence, HasSubstr("rank 2 (host:102) is held up by its network: isend of "
                                          "plugin acme on device 0 (eth0) to rank 1 has no room"));
  EXPECT_THAT(verdict.json, HasSubstr("\"held_up\":\"isend of plugin acme"));
  RankStatus sender = waiting(1, 0);
  sender.lost_to = 2;
  EXPECT_THAT(judge_for(waiting(0, 2), {waiting(0, 2), sender, held}).sentence,
              HasSubstr("rank 1 (host:101) has sent a message to rank 2 that does not arrive"))
      << "a lost message explains why others have no room";
}

TEST(Verdict, CountsManyAndNamesTheFirst) {
  std::vector<RankStatus> statuses = {waiting(0, 1)};
  for (int rank = 1; rank < 100; ++rank) {
    statuses.push_back(outside(rank, 5));
  }
  const auto verdict = judge_for(waiting(0, 1), statuses);
  EXPECT_EQ(verdict.count, 99U);
  EXPECT_THAT(verdict.ranks, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(verdict.sentence, HasSubstr("(99 ranks in all are so: 1 2 3 4 5 6 7 8 ...)"));
  statuses.resize(4);
  EXPECT_THAT(judge_for(waiting(0, 1), statuses).sentence,
              HasSubstr("(3 ranks in all are so: 1 2 3)"));
}

TEST(Verdict, NamesTheLinkToARankThatDoesNotWait) {
  const auto verdict = judge_for(waiting(0, 1), {waiting(0, 1), waiting(1, 2), outside(2, 6)});
  EXPECT_EQ(verdict.cause, StallCause::kLink);
  EXPECT_THAT(verdict.ranks, ElementsAre(1)) << "rank 0 waits for one that waits itself";
}

}  // namespace
}  // namespace plexus
