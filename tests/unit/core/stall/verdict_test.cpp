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
using testing::StartsWith;

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
  EXPECT_THAT(verdict.culprit, StartsWith("rank 2 (host:102), which has not made that call: "));
}

TEST(Verdict, OnlyWhatIsProvedNamesACulprit) {
  RankStatus running = waiting(1, 0);
  running.activity = RankActivity::kRunning;
  EXPECT_EQ(judge_for(waiting(0, 1), {waiting(0, 1), running}).culprit, "");
  EXPECT_EQ(judge_for(waiting(0, 1), {waiting(0, 1), waiting(1, 0)}).culprit, "");
  const RankStatus silent{.activity = RankActivity::kSilent, .rank = 2};
  EXPECT_THAT(judge_for(waiting(0, 1), {waiting(0, 1), running, silent}).culprit,
              StartsWith("rank 2 (host:102), which does not answer: "));
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
  const auto first = judge_for(waiting(2, 1), {outside(0, 6), waiting(1, 0), waiting(2, 1)});
  EXPECT_THAT(first.ranks, ElementsAre(1)) << "rank 0 is a rank like all others";
  const auto none = judge_for(waiting(2, 1), {outside(0, 6), waiting(1, -1), waiting(2, 1)});
  EXPECT_THAT(none.ranks, ElementsAre(2)) << "nobody that is waited for";
}

RankStatus splitting(int rank) {
  return {.activity = RankActivity::kSplitting, .rank = rank, .seconds = 31};
}

TEST(Verdict, ASplitWaitsForRanksThatAreInNoCall) {
  RankStatus elsewhere{.activity = RankActivity::kElsewhere, .rank = 2, .where = "comm 0x9"};
  const auto verdict = judge_for(splitting(0), {splitting(0), outside(1, 100), elsewhere});
  EXPECT_EQ(verdict.cause, StallCause::kNotCalled);
  EXPECT_THAT(verdict.ranks, ElementsAre(1));
  EXPECT_THAT(verdict.sentence, HasSubstr("comm 0x12 of 3 ranks: rank 0 has waited for 31 s in "
                                          "ncclCommSplit: rank 1 (host:101) has not made"));
  const auto link = judge_for(splitting(0), {splitting(0), splitting(1)});
  EXPECT_EQ(link.cause, StallCause::kLink);
}

TEST(Verdict, NamesTheOtherCommunicatorInWhichARankWaits) {
  RankStatus elsewhere{.activity = RankActivity::kElsewhere,
                       .rank = 1,
                       .collectives = 5,
                       .where = "all_reduce of comm 0x9"};
  const auto verdict = judge_for(waiting(0, 1), {waiting(0, 1), elsewhere, outside(2, 5)});
  EXPECT_EQ(verdict.cause, StallCause::kElsewhere);
  EXPECT_THAT(verdict.sentence, HasSubstr("rank 1 (host:101) has not made that call: its thread "
                                          "waits in all_reduce of comm 0x9"));
  elsewhere.collectives = 6;
  EXPECT_EQ(judge_for(waiting(0, 1), {waiting(0, 1), elsewhere}).cause, StallCause::kLink)
      << "it has made the call";
}

TEST(Verdict, NamesARankThatIsStillAtWorkIfNothingElseIsWrong) {
  RankStatus running = waiting(1, -1);
  running.activity = RankActivity::kRunning;
  const auto verdict = judge_for(waiting(0, 1), {waiting(0, 1), running});
  EXPECT_EQ(verdict.cause, StallCause::kSlow);
  EXPECT_THAT(verdict.sentence, HasSubstr("rank 1 (host:101) is still at work in all_reduce("));
  EXPECT_THAT(verdict.sentence, testing::Not(HasSubstr("all ranks have made the call")));
  const auto late = judge_for(waiting(0, 1), {waiting(0, 1), running, outside(2, 5)});
  EXPECT_EQ(late.cause, StallCause::kNotCalled);
  EXPECT_THAT(late.ranks, ElementsAre(2));
}

TEST(Verdict, RanksOfOneCauseAreCountedTogether) {
  RankStatus none = outside(3, 1);
  none.has_call = false;
  none.collectives = 0;
  const auto verdict =
      judge_for(waiting(0, 1), {waiting(0, 1), outside(2, 5), outside(1, 4), none});
  EXPECT_EQ(verdict.count, 3U);
  EXPECT_THAT(verdict.ranks, ElementsAre(1, 2, 3));
  EXPECT_THAT(judge_for(waiting(0, 1), {waiting(0, 1), none}).sentence,
              HasSubstr("it is in no call of this communicator, it has made no call yet"));
}

TEST(Verdict, ALinkIsNamedByThoseWhoseMessagesAreLostFirst) {
  RankStatus held = waiting(1, 0);
  held.held_up = "no room";
  RankStatus sender = waiting(2, 0);
  sender.lost_to = 0;
  RankStatus second = waiting(3, 0);
  second.lost_to = 0;
  const auto verdict = judge_for(waiting(0, 1), {waiting(0, 1), held, second, sender});
  EXPECT_EQ(verdict.count, 3U);
  EXPECT_THAT(verdict.ranks, ElementsAre(2, 3, 1));
}

TEST(Verdict, NamesRanksAloneWhereTheirProcessesAreNotKnown) {
  StatusSummary summary;
  summary.add(waiting(0, 1));
  const StallAsker asker{.group = 1, .nranks = 2, .status = waiting(0, -1), .process_of = [](int) {
                           return std::string();
                         }};
  const auto verdict = judge(asker, summary);
  EXPECT_THAT(verdict.sentence, HasSubstr("and rank 0 has waited for 31 s for rank -1"));
  EXPECT_EQ(verdict.count, 1U);
}

TEST(Verdict, CausesAndActivitiesHaveNames) {
  const auto causes = [] {
    std::vector<std::string> names;
    for (uint8_t cause = 0; cause < 7; ++cause) {
      names.emplace_back(name(static_cast<StallCause>(cause)));
    }
    return names;
  };
  EXPECT_THAT(causes(), ElementsAre("stopped", "in_plugin", "elsewhere", "not_called", "link",
                                    "slow", "unknown"));
  std::vector<std::string> activities;
  for (uint8_t activity = 0; activity <= kRankActivities; ++activity) {
    activities.emplace_back(name(static_cast<RankActivity>(activity)));
  }
  EXPECT_THAT(activities, ElementsAre("silent", "in_plugin", "elsewhere", "outside", "running",
                                      "splitting", "waiting", "unknown"));
}

StallAsker asker_of(const RankStatus& status) {
  return {.group = 0x12, .nranks = 4, .status = status, .process_of = [](int) { return "p"; }};
}

TEST(Describe, OfASummaryInWhichNobodyWaitsIsTheSummary) {
  StatusSummary summary;
  summary.add({.rank = 1, .collectives = 6});
  summary.others = 3;
  EXPECT_EQ(describe(asker_of({.rank = 0}), summary),
            R"({"classes":[{"count":1,"examples":[{"activity":"outside","collectives":6,"rank":1,)"
            R"("seconds":0}]}],"comm":"0x12","not_heard":3,"nranks":4})");
}

TEST(Describe, OfOneInWhichARankWaitsHasTheVerdictForIt) {
  StatusSummary summary;
  RankStatus lost = waiting(2, 0);
  lost.lost_to = 0;
  lost.held_up = "no room";
  summary.add(waiting(1, 0));
  summary.add(lost);
  const std::string other = describe(asker_of({.rank = 0}), summary);
  EXPECT_THAT(other, HasSubstr("comm 0x12 of 4 ranks: rank 2 has waited for 31 s"));
  EXPECT_THAT(other, HasSubstr(R"("held_up":"no room","lost_to":0,"rank":2)"));
  EXPECT_THAT(other, HasSubstr(R"("waits_for":0,"where":"net/Socket)"));
  EXPECT_THAT(other, HasSubstr(R"("cause":"link","classes":)"));
  EXPECT_THAT(other, HasSubstr(R"("count":1)"));
  const std::string own = describe(asker_of(splitting(3)), summary);
  EXPECT_THAT(own, HasSubstr("rank 3 has waited for 31 s in ncclCommSplit"));
  EXPECT_THAT(own, HasSubstr(R"("seconds":31,"verdict":)"));
}

TEST(Describe, OfAReportHasTheLastCallsAndWhatIsWaitedFor) {
  const std::string bare = describe(StallReport{.group = 0x12, .nranks = 4, .calls = 7});
  EXPECT_EQ(bare, R"({"activity":"outside","calls":7,"collectives":0,"comm":"0x12","members":[],)"
                  R"("nranks":4,"rank":0,"recent":[],"records":[],"seconds":0,"verdict":"",)"
                  R"("waits":[]})");
  StallReport report{.group = 0x12, .nranks = 4, .status = waiting(1, 0), .verdict = "late"};
  report.members = {"a:1", "a:2"};
  report.recent = {call_of(Collective::kBroadcast, 1), report.status.call,
                   call_of(Collective::kAllReduce, 9)};
  report.waits = {
      {.call = call_of(Collective::kAllReduce, 2), .peer = 3, .certain = true, .where = "step 2"}};
  const std::string full = describe(report);
  EXPECT_THAT(full, HasSubstr(R"("recent":["broadcast()"));
  EXPECT_THAT(full, HasSubstr(R"(,"all_reduce()"));
  EXPECT_THAT(full, HasSubstr(R"("waits":[{"call":"all_reduce()"));
  EXPECT_THAT(full, HasSubstr(R"("rank":3,"where":"step 2"}])"));
  EXPECT_THAT(full, HasSubstr(R"("verdict":"late")"));
  EXPECT_THAT(full, HasSubstr(R"("members":["a:1","a:2"])"));
  const size_t ended = full.find(R"("state":"completed")");
  const size_t begun = full.find(R"("state":"started")");
  const size_t queued = full.find(R"("state":"scheduled")");
  EXPECT_LT(ended, begun) << full;
  EXPECT_LT(begun, queued) << full;
  EXPECT_NE(queued, std::string::npos) << full;
}

}  // namespace
}  // namespace plexus
