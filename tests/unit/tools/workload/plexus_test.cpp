// SPDX-License-Identifier: Apache-2.0
// Workloads from files: what is read, and what is said of a file that is none.
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/workload/workload.hpp"

namespace plexus {
namespace {

std::string event(int rank, const std::string& about) {
  return R"({"name":"x","ph":"X","ts":1.0,"dur":2.0,"pid":)" + std::to_string(rank) +
         R"(,"tid":0,"args":{)" + about + "}}";
}
std::string call(const char* collective, int count, const char* type = "ncclFloat32") {
  return R"("collective":")" + std::string(collective) + R"(","count":)" + std::to_string(count) +
         R"(,"datatype":")" + type + R"(","nranks":4)";
}

TEST(Workload, ByHandIsAListOfCalls) {
  const auto calls = parse_workload(
      R"({"calls": [{"collective": "all_reduce", "bytes": 8, "times": 3},
                    {"collective": "alltoall", "bytes": 16}]})");
  ASSERT_TRUE(calls.has_value());
  ASSERT_EQ(calls.value().calls.size(), 2U);
  EXPECT_EQ(calls.value().calls[0].times, 3U);
  EXPECT_EQ(calls.value().calls[1].collective, Collective::kAllToAll);
  EXPECT_EQ(calls.value().calls[1].times, 1U);
}

TEST(Workload, RecordedIsTheLowestRanksCollectivesInOrder) {
  const std::string trace = "[" + event(1, call("AllReduce", 999)) + "," +
                            event(0, call("AllReduce", 100)) + "," + event(0, "") + "," +
                            event(0, call("AllReduce", 100)) + "," +
                            event(1, call("AllReduce", 100)) + "," +
                            event(0, call("AllGather", 10, "ncclBfloat16")) + "]";
  const auto calls = parse_workload(trace);
  ASSERT_TRUE(calls.has_value()) << calls.error().message();
  ASSERT_EQ(calls.value().calls.size(), 2U);
  EXPECT_EQ(calls.value().calls[0].collective, Collective::kAllReduce);
  EXPECT_EQ(calls.value().calls[0].bytes, 400U);
  EXPECT_EQ(calls.value().calls[0].times, 2U);
  EXPECT_EQ(calls.value().calls[1].bytes, 4U * 10 * 2)
      << "the larger buffer has a block of each rank";
}

TEST(Workload, ByHandHasGroupsOfSendsAndReceives) {
  const auto calls = parse_workload(
      R"({"calls": [{"exchange": [{"distance": 2, "bytes": 64},
                                  {"distance": -1, "bytes": 8, "wraps": true}], "times": 5}]})");
  ASSERT_TRUE(calls.has_value()) << calls.error().message();
  ASSERT_EQ(calls.value().calls.size(), 1U);
  EXPECT_EQ(calls.value().calls[0].times, 5U);
  EXPECT_EQ(calls.value().calls[0].bytes, 72U);
  EXPECT_THAT(calls.value().calls[0].exchanges,
              testing::ElementsAre(WorkloadExchange{.distance = 2, .wraps = false, .bytes = 64},
                                   WorkloadExchange{.distance = -1, .wraps = true, .bytes = 8}));
}

std::string message(const char* end, int peer, int group, int count = 16) {
  return R"("p2p":")" + std::string(end) + R"(","count":)" + std::to_string(count) +
         R"(,"datatype":"ncclFloat32","nranks":8,"peer":)" + std::to_string(peer) + R"(,"group":)" +
         std::to_string(group);
}

TEST(Workload, RecordedSendsAndReceivesAreDistances) {
  using Exchanges = std::vector<WorkloadExchange>;
  // what rank 2 of 8 does, and what each rank does then
  const std::vector<std::pair<std::string, Exchanges>> cases = {
      {event(2, message("Send", 3, 1)), {{.distance = 1, .wraps = false, .bytes = 64}}},
      {event(2, message("Recv", 3, 1)), {{.distance = -1, .wraps = false, .bytes = 64}}},
      {event(2, message("Send", 3, 1)) + "," + event(2, message("Recv", 1, 1)),
       {{.distance = 1, .wraps = true, .bytes = 64}}},
      {event(2, message("Recv", 6, 1)) + "," + event(2, message("Send", 6, 1)),
       {{.distance = 4, .wraps = true, .bytes = 64}}},
      {event(2, message("Send", 0, 1)) + "," + event(2, message("Send", 7, 1)),
       {{.distance = -3, .wraps = false, .bytes = 64},
        {.distance = -2, .wraps = false, .bytes = 64}}},
      // with itself, and of no bytes
      {event(2, message("Send", 2, 1)) + "," + event(2, message("Recv", 2, 1)) + "," +
           event(2, message("Send", 4, 1, 0)) + "," + event(2, message("Send", 3, 2)),
       {{.distance = 1, .wraps = false, .bytes = 64}}}};
  for (const auto& [events, expected] : cases) {
    const auto calls = parse_workload("[" + events + "]");
    ASSERT_TRUE(calls.has_value()) << calls.error().message();
    ASSERT_EQ(calls.value().calls.size(), 1U) << events;
    EXPECT_EQ(calls.value().calls[0].exchanges, expected) << events;
  }
}

TEST(Workload, RecordedGroupsAndCollectivesAreInOrder) {
  const auto calls = parse_workload(
      "[" + event(0, message("Send", 1, 1)) + "," + event(1, message("Recv", 0, 1)) + "," +
      event(0, message("Send", 1, 2)) + "," + event(0, call("AllReduce", 100)) + "," +
      event(0, message("Send", 1, 3)) + "]");
  ASSERT_TRUE(calls.has_value());
  ASSERT_EQ(calls.value().calls.size(), 3U);
  EXPECT_EQ(calls.value().calls[0].times, 2U);
  EXPECT_EQ(calls.value().calls[0].exchanges.size(), 1U);
  EXPECT_TRUE(calls.value().calls[1].exchanges.empty());
  EXPECT_EQ(calls.value().calls[2].times, 1U);
}

TEST(Workload, EveryTypeHasItsSize) {
  for (const auto& [type, bytes] : {std::pair{"ncclInt8", 1U},
                                    {"ncclUint8", 1U},
                                    {"Unknown", 1U},  // ncclUint8 as NCCL 2.28 names it
                                    {"ncclFloat8e4m3", 1U},
                                    {"ncclFloat8e5m2", 1U},
                                    {"ncclFloat16", 2U},
                                    {"ncclBfloat16", 2U},
                                    {"ncclInt32", 4U},
                                    {"ncclUint32", 4U},
                                    {"ncclFloat32", 4U},
                                    {"ncclInt64", 8U},
                                    {"ncclUint64", 8U},
                                    {"ncclFloat64", 8U}}) {
    const auto calls = parse_workload("[" + event(0, call("Reduce", 1, type)) + "]");
    ASSERT_TRUE(calls.has_value()) << type;
    EXPECT_EQ(calls.value().calls[0].bytes, bytes) << type;
  }
}

TEST(Workload, WhatIsWrongIsNamed) {
  for (const auto& [text, says] :
       {std::pair<std::string, std::string>{"", "is neither"},
        {"[", "is neither"},
        {R"({"calls": 1})", "is neither"},
        {"[]", "has no collective"},
        {"[" + event(0, "") + "]", "has no collective"},
        {R"({"calls": [{"collective": "all_reduce"}]})", "call 0"},
        {R"({"calls": [{"collective": "all_reduce", "bytes": -1}]})", "call 0"},
        {R"({"calls": [{"exchange": []}]})", "call 0"},
        {R"({"calls": [{"exchange": [{"distance": 0, "bytes": 8}]}]})", "call 0"},
        {R"({"calls": [{"exchange": [{"distance": 1.5, "bytes": 8}]}]})", "call 0"},
        {R"({"calls": [{"exchange": [{"distance": 1, "bytes": 0}]}]})", "call 0"},
        {R"({"calls": [{"exchange": [{"distance": 1, "bytes": 8, "wraps": 1}]}]})", "call 0"},
        {R"({"calls": [{"exchange": [{"distance": 1, "bytes": 1099511627776},
                                     {"distance": 2, "bytes": 1}]}]})",
         "call 0"},
        {R"({"calls": [{"collective": "all_reduce", "exchange": [{"distance": 1, "bytes": 8}]}]})",
         "call 0"},
        {"[" + event(0, message("Push", 1, 1)) + "]", "event 0"},
        {"[" + event(0, message("Send", 8, 1)) + "]", "event 0"},
        {"[" + event(8, message("Send", 1, 1)) + "]", "event 0"},
        {"[" + event(0, call("AllReduce", 1)) + "," + event(0, call("Sum", 1)) + "]", "event 1"},
        {"[" + event(0, call("AllReduce", 1, "ncclComplex")) + "]", "event 0"},
        {"[" +
             event(0, R"("collective":"AllReduce","count":1099511627776,)"
                      R"("datatype":"ncclInt8","nranks":1048577)") +
             "]",
         "event 0"},
        {"[" +
             event(0, R"("collective":"AllToAll","count":1099511627776,)"
                      R"("datatype":"ncclInt8","nranks":2)") +
             "]",
         "more than"}}) {
    const auto calls = parse_workload(text);
    ASSERT_TRUE(calls.has_error()) << text;
    EXPECT_THAT(calls.error().message(), testing::HasSubstr(says)) << text;
  }
}

}  // namespace
}  // namespace plexus
