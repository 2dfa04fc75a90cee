// SPDX-License-Identifier: Apache-2.0
// Probes as bytes from other processes, and conclusions from two ranks' calls.
#include "core/stall/stall_probe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/layout/collective.hpp"

namespace plexus {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

CallRecord call_of(Collective collective, uint64_t sequence, int root = 0) {
  CallRecord call{};
  call.collective = static_cast<uint8_t>(collective);
  call.sequence = sequence;
  call.root = root;
  return call;
}

StallHop hop_of(int rank, int peer, const CallRecord& call) {
  StallHop hop;
  hop.group = 7;
  hop.epoch = 3;
  hop.rank = rank;
  hop.peer = peer;
  hop.call = call;
  hop.is_certain = 1;
  return hop;
}

TEST(StallProbe, SurvivesItsEncoding) {
  StallProbe probe{.proves = true, .index = 1, .hops = {}};
  probe.hops.push_back(hop_of(0, 1, call_of(Collective::kRecv, 5, 1)));
  probe.hops.push_back(hop_of(1, 0, call_of(Collective::kAllReduce, 2)));
  const auto decoded = decode_stall_probe(encode(probe));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_TRUE(decoded->proves);
  EXPECT_EQ(decoded->index, 1U);
  ASSERT_EQ(decoded->hops.size(), 2U);
  EXPECT_EQ(decoded->hops[1].rank, 1);
  EXPECT_EQ(decoded->hops[0].call.sequence, 5U);
}

TEST(StallProbe, BytesThatAreNoneAreRefused) {
  StallProbe probe{.proves = false, .index = 0, .hops = {hop_of(0, 1, {})}};
  const std::string good = encode(probe);
  EXPECT_TRUE(decode_stall_probe(good).has_value());
  EXPECT_FALSE(decode_stall_probe("").has_value());
  EXPECT_FALSE(decode_stall_probe(good.substr(0, good.size() - 1)).has_value());
  EXPECT_FALSE(decode_stall_probe(good.substr(0, 8)).has_value()) << "without hops";
  probe.index = 1;
  EXPECT_FALSE(decode_stall_probe(encode(probe)).has_value()) << "no such hop";
  probe.index = 0;
  probe.hops.resize(kStallHopsMax + 1);
  EXPECT_FALSE(decode_stall_probe(encode(probe)).has_value()) << "too long";
}

TEST(LeaveRecord, SurvivesItsEncodingAndRefusesOthers) {
  const LeaveRecord record{
      .collectives = 4,
      .splits = 1,
      .last = {call_of(Collective::kAllReduce, 2), call_of(Collective::kBroadcast, 3, 1)},
      .messages = {{.peer = 2, .sends = 3, .recvs = 0}}};
  const auto decoded = decode_leave_record(encode(record));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->collectives, 4U);
  ASSERT_EQ(decoded->messages.size(), 1U);
  EXPECT_EQ(decoded->messages[0].sends, 3U);
  ASSERT_EQ(decoded->last.size(), 2U);
  EXPECT_EQ(decoded->last[1].sequence, 3U);
  EXPECT_EQ(decoded->last[1].root, 1);
  EXPECT_FALSE(decode_leave_record("").has_value());
  EXPECT_FALSE(decode_leave_record(encode(record) + "x").has_value());
}

TEST(CompareCalls, FindsCallsThatOnlySomeRanksHaveMade) {
  const CallRecord first = call_of(Collective::kAllReduce, 0);
  const CallRecord second = call_of(Collective::kBroadcast, 1, 2);
  LeaveRecord one{.collectives = 1, .last = {first}, .messages = {}};
  LeaveRecord two{.collectives = 2, .last = {first, second}, .messages = {}};
  EXPECT_EQ(compare_calls({{0, two}, {1, two}, {2, two}}), "");
  const std::string sentence = compare_calls({{0, one}, {1, one}, {2, two}});
  EXPECT_THAT(sentence, HasSubstr("rank 2 has destroyed its communicator after 2 collectives, rank "
                                  "0 after 1, without broadcast("));
  EXPECT_THAT(sentence, HasSubstr("the same calls in the same order"));
  two.collectives = 200;
  two.last.clear();  // its call of number 1 is not among the last ones
  EXPECT_THAT(compare_calls({{3, two}, {5, one}}), HasSubstr("rank 5 after 1; every"));
  EXPECT_EQ(compare_calls({}), "");
}

TEST(CompareCalls, FindsMessagesWithoutTheirCounterpart) {
  LeaveRecord left;
  LeaveRecord right;
  left.messages = {{.peer = 0, .sends = 1, .recvs = 1}, {.peer = 1, .sends = 3, .recvs = 2}};
  right.messages = {{.peer = 0, .sends = 2, .recvs = 3}};
  EXPECT_EQ(compare_calls({{0, left}, {1, right}}), "");
  right.messages[0].recvs = 2;
  EXPECT_THAT(
      compare_calls({{0, left}, {1, right}}),
      HasSubstr("rank 0 has destroyed its communicator after 3 calls of ncclSend to rank 1, "
                "which has made 2 of ncclRecv from it"));
  right.messages[0] = {.peer = 0, .sends = 1, .recvs = 3};
  EXPECT_THAT(
      compare_calls({{0, left}, {1, right}}),
      HasSubstr("after 2 calls of ncclRecv from rank 1, which has made 1 of ncclSend to it"));
  right.messages = {{.peer = 0, .sends = 2, .recvs = 3, .of_vector = 1}};
  EXPECT_THAT(compare_calls({{0, left}, {1, right}}),
              HasSubstr("which has made 0 of ncclRecv from it"));
  right.messages = {{.peer = 7, .sends = 1, .recvs = 0}};
  EXPECT_EQ(compare_calls({{0, {}}, {1, right}}), "") << "of a rank that is not among them";
}

TEST(CountAnswers, OfASendAreTheReceivesAndOfAReceiveTheSends) {
  LeaveRecord record{.collectives = 9, .last = {}, .messages = {}};
  record.messages = {{.peer = 2, .sends = 5, .recvs = 7}, {.peer = 3, .sends = 1, .recvs = 1}};
  EXPECT_EQ(count_answers(record, call_of(Collective::kSend, 0), 2), 7U);
  EXPECT_EQ(count_answers(record, call_of(Collective::kRecv, 0), 2), 5U);
  EXPECT_EQ(count_answers(record, call_of(Collective::kRecv, 0), 1), 0U) << "none with rank 1";
  EXPECT_EQ(count_answers(record, call_of(Collective::kAllReduce, 0), 2), 9U);
}

TEST(DescribeLeft, SaysWhetherAProcessHasEndedOrACommunicatorWasDestroyed) {
  const CallRecord call = call_of(Collective::kAllReduce, 3);
  const auto ended = describe_left(0, call, 2, Departure::kProcessEnded);
  EXPECT_EQ(ended.code(), Code::kRemoteError);
  EXPECT_THAT(std::string(ended.message()), HasSubstr("rank 2, whose process has ended"));
  const auto destroyed = describe_left(0, call, 2, Departure::kDestroyed);
  EXPECT_EQ(destroyed.code(), Code::kInvalidUsage);
  EXPECT_THAT(std::string(destroyed.message()), HasSubstr("rank 2, which has destroyed"));
}

TEST(DependsOn, OnlyWhatNoAlgorithmCanDoWithout) {
  EXPECT_TRUE(depends_on(call_of(Collective::kAllReduce, 0), 1, 2));
  EXPECT_TRUE(depends_on(call_of(Collective::kBroadcast, 0, 2), 1, 2));
  EXPECT_FALSE(depends_on(call_of(Collective::kBroadcast, 0, 2), 1, 0));
  EXPECT_FALSE(depends_on(call_of(Collective::kBroadcast, 0, 2), 2, 1)) << "the root may end first";
  EXPECT_TRUE(depends_on(call_of(Collective::kReduce, 0, 2), 2, 1));
  EXPECT_FALSE(depends_on(call_of(Collective::kReduce, 0, 2), 1, 2));
  EXPECT_FALSE(depends_on(call_of(Collective::kSend, 0, 2), 1, 2));
}

TEST(DescribeCircle, NamesRanksCallsAndTheRemedyThatFits) {
  const std::vector<StallHop> messages = {hop_of(0, 1, call_of(Collective::kSend, 0, 1)),
                                          hop_of(1, 0, call_of(Collective::kSend, 0, 0))};
  const auto of_messages = std::string(describe_circle(messages).message());
  EXPECT_THAT(of_messages, HasSubstr("rank 0 waits in send("));
  EXPECT_THAT(of_messages, HasSubstr("ncclGroupStart"));
  EXPECT_THAT(of_messages, Not(HasSubstr("comm 0x"))) << "there is one only";

  std::vector<StallHop> comms = {hop_of(0, 1, call_of(Collective::kAllReduce, 0)),
                                 hop_of(1, 0, call_of(Collective::kAllReduce, 0))};
  comms[1].group = 8;
  comms[1].call.collective = 99;
  const auto of_comms = std::string(describe_circle(comms).message());
  EXPECT_THAT(of_comms, HasSubstr("comm 0x8"));
  EXPECT_THAT(of_comms, HasSubstr("unreadable")) << "a peer's bytes are not trusted";
  EXPECT_THAT(of_comms, HasSubstr("communicators in the same order"));
}

TEST(StallProbe, ItsNumbersHaveBounds) {
  StallProbe probe{.proves = false, .index = 0, .hops = {}};
  probe.hops.resize(kStallHopsMax);
  std::string bytes = encode(probe);
  ASSERT_TRUE(decode_stall_probe(bytes).has_value());
  EXPECT_FALSE(decode_stall_probe(bytes)->proves);
  bytes[0] = 2;  // `proves`, which comes first
  EXPECT_FALSE(decode_stall_probe(bytes).has_value());
}

TEST(LeaveRecord, ItsNumbersHaveBounds) {
  LeaveRecord record{.how = Departure::kStopped, .splits = 3, .last = {}, .messages = {}};
  record.last.resize(LeaveRecord::kLastMax);
  const auto decoded = decode_leave_record(encode(record));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->how, Departure::kStopped);
  EXPECT_EQ(decoded->splits, 3U);
  EXPECT_EQ(decoded->last.size(), LeaveRecord::kLastMax);
  record.last.emplace_back();
  EXPECT_FALSE(decode_leave_record(encode(record)).has_value());
  record.last.clear();
  record.how = static_cast<Departure>(static_cast<int>(Departure::kStopped) + 1);
  EXPECT_FALSE(decode_leave_record(encode(record)).has_value());
}

TEST(CountAnswers, MessagesOfVectorsCountApart) {
  LeaveRecord record;
  record.messages = {{.peer = 2, .sends = 5, .recvs = 7},
                     {.peer = 2, .sends = 1, .recvs = 3, .of_vector = 1}};
  CallRecord call = call_of(Collective::kSend, 0);
  EXPECT_EQ(count_answers(record, call, 2), 7U);
  call.of_vector = 1;
  EXPECT_EQ(count_answers(record, call, 2), 3U);
  record.messages.erase(record.messages.begin());
  EXPECT_EQ(count_answers(record, call_of(Collective::kSend, 0), 2), 0U);
}

TEST(DescribeDifferent, NamesBothCallsAndTheRule) {
  const auto error = describe_different(3, call_of(Collective::kAllReduce, 0), 5,
                                        call_of(Collective::kBroadcast, 0, 1));
  EXPECT_EQ(error.code(), Code::kInvalidUsage);
  EXPECT_THAT(error.message(), testing::StartsWith("the ranks' calls differ: rank 3 made all_"));
  EXPECT_THAT(error.message(), HasSubstr(", rank 5 made broadcast("));
  EXPECT_THAT(error.message(),
              testing::EndsWith("every rank of a communicator must make the same calls in the same "
                                "order"));
}

TEST(DescribeCircle, ASplitOrARankThatIsElsewhereIsNoMessage) {
  constexpr const char* kRule = "; every rank of a communicator must make the same calls";
  std::vector<StallHop> hops = {hop_of(0, 1, call_of(Collective::kSend, 0, 1)),
                                hop_of(1, 0, call_of(Collective::kSend, 0, 0))};
  hops[1].is_split = 1;
  const auto split = describe_circle(hops);
  EXPECT_THAT(split.message(), HasSubstr(", rank 1 waits in ncclCommSplit for rank 0"));
  EXPECT_THAT(split.message(), HasSubstr(kRule));
  hops[1].is_split = 0;
  hops[1].epoch = 0;
  const auto elsewhere = describe_circle(hops);
  EXPECT_THAT(elsewhere.message(),
              HasSubstr(", rank 1 has not made that call: its thread waits elsewhere; every rank"));
  hops[1] = hop_of(1, 0, call_of(Collective::kAllReduce, 0));
  EXPECT_THAT(describe_circle(hops).message(), HasSubstr(kRule));
}

TEST(DependsOn, IsAsTheDataOfEachCollectiveGoes) {
  for (const Collective all :
       {Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll}) {
    EXPECT_TRUE(depends_on(call_of(all, 0), 1, 2));
  }
  EXPECT_TRUE(depends_on(call_of(Collective::kScatter, 0, 2), 1, 2));
  EXPECT_FALSE(depends_on(call_of(Collective::kScatter, 0, 2), 2, 1));
  EXPECT_TRUE(depends_on(call_of(Collective::kGather, 0, 2), 2, 1));
  EXPECT_FALSE(depends_on(call_of(Collective::kGather, 0, 2), 1, 2));
  EXPECT_FALSE(depends_on(call_of(Collective::kRecv, 0, 2), 1, 2));
}

}  // namespace
}  // namespace plexus
