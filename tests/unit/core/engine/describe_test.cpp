// SPDX-License-Identifier: Apache-2.0
// The texts of errors about calls that do not match.
#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/engine/engine.hpp"
#include "kernels/layout/collective.hpp"
#include "kernels/layout/types.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;
using testing::Not;

CallRecord record_of(Collective collective) {
  CallRecord call{};
  call.collective = static_cast<uint8_t>(collective);
  call.type = static_cast<uint8_t>(DataType::kFloat32);
  call.op = static_cast<uint8_t>(ReduceKind::kSum);
  call.count = 1024;
  call.root = 3;
  call.sequence = 7;
  return call;
}

TEST(DescribeCall, NamesWhatTheCallHasAndNothingElse) {
  const std::string reduced = describe_call(record_of(Collective::kAllReduce));
  EXPECT_THAT(reduced, HasSubstr("count 1024, float, sum"));
  EXPECT_THAT(reduced, HasSubstr("call number 7"));
  EXPECT_THAT(reduced, Not(HasSubstr("root")));
  const std::string sent = describe_call(record_of(Collective::kBroadcast));
  EXPECT_THAT(sent, HasSubstr("root 3"));
  EXPECT_THAT(sent, Not(HasSubstr("sum")));
}

TEST(DescribeCall, MessagesHaveTheirPeerAndNumber) {
  EXPECT_THAT(describe_call(record_of(Collective::kSend)), HasSubstr("to rank 3, number 7 to it"));
  EXPECT_THAT(describe_call(record_of(Collective::kRecv)),
              HasSubstr("from rank 3, number 7 from it"));
}

TEST(DescribeCall, ARecordFromOutsideMayHoldAnything) {
  CallRecord call = record_of(Collective::kAllReduce);
  call.op = 200;
  call.algorithm = 255;
  EXPECT_THAT(describe_call(call), HasSubstr("count 1024"));
  call.collective = 255;
  EXPECT_EQ(describe_call(call), "an unreadable call");
  call = record_of(Collective::kAllReduce);
  call.type = 255;
  EXPECT_EQ(describe_call(call), "an unreadable call");
}

TEST(DescribeMismatch, NamesBothRanksAndThePeersCallByItsHash) {
  CallRecord theirs = record_of(Collective::kBroadcast);
  theirs.hash = 42;
  const std::array<CallRecord, 2> known = {record_of(Collective::kAllGather), theirs};
  const Error error = describe_mismatch({.rank = 0,
                                         .peer = 5,
                                         .call = record_of(Collective::kAllReduce),
                                         .peers_calls = known,
                                         .hash_arrived = 42,
                                         .size_expected = 8,
                                         .size_arrived = 8});
  EXPECT_EQ(error.code(), Code::kInvalidUsage);
  EXPECT_THAT(error.message(), HasSubstr("rank 0 made"));
  EXPECT_THAT(error.message(), HasSubstr("rank 5 made " + describe_call(theirs)));
  EXPECT_THAT(error.message(), Not(HasSubstr("bytes")));
}

TEST(DescribeMismatch, SaysSoWhenThePeersCallIsUnknownAndWhenSizesDiffer) {
  const Error error = describe_mismatch({.rank = 0,
                                         .peer = 5,
                                         .call = record_of(Collective::kSend),
                                         .peers_calls = {},
                                         .hash_arrived = 42,
                                         .size_expected = 8,
                                         .size_arrived = 16});
  EXPECT_THAT(error.message(), HasSubstr("a different call"));
  EXPECT_THAT(error.message(), HasSubstr("sent 16 bytes where 8 were expected"));
}

}  // namespace
}  // namespace plexus
