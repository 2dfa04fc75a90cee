// SPDX-License-Identifier: Apache-2.0
// Times of calls and computing together, against sums made by hand.
#include "tools/workload/predict.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

/// A call takes a us per 1,000 bytes, a message 2 us more.
WorkCosts costs(int nranks = 4) {
  return {.nranks = nranks,
          .call_us = [](const WorkloadCall& call) -> Result<double> {
            return static_cast<double>(call.times * call.bytes) / 1000;
          },
          .is_near = [](const WorkloadCall& call) { return call.group > 0; },
          .link = [](int, int) { return WorkLink{.latency_us = 2, .us_per_byte = 1e-3}; }};
}

WorkPrediction of(const std::string& text, const WorkCosts& with = costs()) {
  const auto work = parse_workload(text);
  EXPECT_TRUE(work.has_value()) << work.error().message();
  auto made = predict(work.value(), with);
  EXPECT_TRUE(made.has_value()) << made.error().message();
  return std::move(made).value();
}

constexpr const char* kOverlapped = R"({"calls": [
    {"compute_us": 10},
    {"collective": "all_reduce", "bytes": 30000, "stream": 1, "after": [0]},
    {"compute_us": 20},
    {"compute_us": 5, "after": [1], "name": "update"}]})";

TEST(WorkPredict, ACallBesideComputingIsExposedForTheRest) {
  const WorkPrediction made = of(kOverlapped);
  EXPECT_DOUBLE_EQ(made.time_us, 45);
  EXPECT_DOUBLE_EQ(made.compute_us, 35);
  EXPECT_DOUBLE_EQ(made.communication_us, 30);
  EXPECT_DOUBLE_EQ(made.exposed_us, 10);
  ASSERT_EQ(made.path.size(), 3U);
  EXPECT_EQ(made.path[0].name, "all_reduce");
  EXPECT_DOUBLE_EQ(made.path[0].time_us, 30);
  EXPECT_EQ(made.path[1].name, "computing");
  EXPECT_DOUBLE_EQ(made.path[1].time_us, 10) << "the 20 us beside the call are not on it";
  EXPECT_EQ(made.path[2].name, "update");
}

TEST(WorkPredict, SlowerComputingCountsWhereItIsOnThePath) {
  WorkCosts slow = costs();
  slow.slow_factor = 2;
  EXPECT_DOUBLE_EQ(of(kOverlapped, slow).time_us, 20 + 40 + 10) << "the call is hidden now";
  slow.slow_factor = 1;
  slow.compute_factor = 0.5;
  EXPECT_DOUBLE_EQ(of(kOverlapped, slow).time_us, 5 + 30 + 2.5);
}

TEST(WorkPredict, CallsThroughOnePortFollowEachOther) {
  const char* const text = R"({"groups": [{"name": "tp", "ranks": 2}], "calls": [
      {"collective": "all_reduce", "bytes": 10000},
      {"collective": "all_reduce", "bytes": 10000, "stream": 1},
      {"collective": "all_reduce", "bytes": 10000, "stream": 2, "group": "tp"}]})";
  EXPECT_DOUBLE_EQ(of(text).time_us, 20) << "the third is within the node";
}

TEST(WorkPredict, MessagesArriveAfterTheyAreSent) {
  const WorkPrediction made =
      of("num_ranks 3\n"
         "rank 0 {\nc: calc 5000\ns: send 4000b to 2\ns requires c\n}\n"
         "rank 1 {\ns: send 4000b to 2\n}\n"
         "rank 2 {\na: recv 4000b from 0\nb: recv 4000b from 1\nc: calc 1000\nc requires a\n"
         "c requires b\n}\n");
  EXPECT_DOUBLE_EQ(made.time_us, 5 + 2 + 4 + 1);
  EXPECT_EQ(made.rank, 2);
  const WorkPrediction both =
      of("num_ranks 3\nrank 0 {\ns: send 4000b to 2\n}\nrank 1 {\ns: send 4000b to 2\n}\n"
         "rank 2 {\na: recv 4000b from 0\nb: recv 4000b from 1\n}\n");
  EXPECT_DOUBLE_EQ(both.time_us, 2 + 4 + 4) << "through one port, one after the other";
}

TEST(WorkPredict, ComputingOfOneProcessorFollowsEachOther) {
  EXPECT_DOUBLE_EQ(of("num_ranks 1\nrank 0 {\na: calc 5000\nb: calc 5000\n}\n").time_us, 10);
  EXPECT_DOUBLE_EQ(of("num_ranks 1\nrank 0 {\na: calc 5000 cpu 0\nb: calc 5000 cpu 1\n}\n").time_us,
                   5);
}

TEST(WorkPredict, WhatNeverEndsIsNamed) {
  for (const auto& [text, says] :
       {std::pair("num_ranks 2\nrank 0 {\na: recv 8b from 1 tag 3\n}\n", "rank 1 (tag 3"),
        {"num_ranks 1\nrank 0 {\na: calc 5\nb: calc 5\na requires b\nb requires a\n}\n",
         "wait for each other"}}) {
    const auto work = parse_workload(text);
    ASSERT_TRUE(work.has_value());
    const auto made = predict(work.value(), costs());
    ASSERT_TRUE(made.has_error());
    EXPECT_THAT(made.error().message(), testing::HasSubstr(says));
  }
}

TEST(WorkPredict, AReceiveWithoutItsSendIsCounted) {
  const char* const text = R"({"nodes": [
      {"id": 1, "type": 6, "attr": [{"name": "comm_src", "int32_val": 3},
                                    {"name": "comm_size", "int64_val": 1000}]}]})";
  const WorkPrediction made = of(text);
  EXPECT_EQ(made.unmatched, 1U);
  EXPECT_DOUBLE_EQ(made.time_us, 3);
}

}  // namespace
}  // namespace plexus
