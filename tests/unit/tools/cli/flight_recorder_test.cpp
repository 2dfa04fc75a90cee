// SPDX-License-Identifier: Apache-2.0
// Answers of processes as records of PyTorch's flight recorder.
#include "tools/cli/flight_recorder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using nlohmann::json;

json call(const char* collective, int sequence, int count, const char* state, int root = 0) {
  return {{"collective", collective}, {"sequence", sequence}, {"count", count},
          {"type", "bfloat16"},       {"root", root},         {"state", state}};
}

/// A process with one rank of a job of four, in two communicators of two ranks: even and odd.
json answer(int rank) {
  const json world = {"a:1", "a:2", "b:1", "b:2"};
  const json half = rank % 2 == 0 ? json{"a:1", "b:1"} : json{"a:2", "b:2"};
  return {{"pid", rank},
          {"ranks",
           {{{"comm", "0x7"},
             {"rank", rank},
             {"calls", 302},
             {"members", world},
             {"records",
              {call("all_gather", 300, 5, "completed"), call("alltoall", 301, 6, "started")}}},
            {{"comm", rank % 2 == 0 ? "0x8" : "0x9"},
             {"rank", rank / 2},
             {"calls", 3},
             {"members", half},
             {"records",
              {call("all_reduce", 1, 7, "completed"),
               call(rank < 2 ? "send" : "recv", 0, 9, "scheduled", rank < 2 ? 1 : 0)}}}}}};
}

TEST(FlightRecorder, EachRankHasItsCallsInAllCommunicators) {
  const auto records = make_flight_records({answer(0), answer(3)});
  ASSERT_TRUE(records.has_value()) << records.error().message();
  ASSERT_EQ(records.value().size(), 2U) << "of other processes nothing is known";
  const json& last = records.value().at(3);
  EXPECT_EQ(last.at("version"), "2.5");
  EXPECT_EQ(last.at("pg_config").size(), 2U);
  EXPECT_EQ(last.at("pg_config").at("0x7").at("ranks"), "[0, 1, 2, 3]");
  EXPECT_EQ(last.at("pg_config").at("0x9").at("ranks"), "[1, 3]") << "ranks of the job";
  ASSERT_EQ(last.at("entries").size(), 4U);
  const json& gathers = last.at("entries").at(0);
  EXPECT_EQ(gathers.at("profiling_name"), "nccl:_all_gather_base");
  EXPECT_EQ(gathers.at("collective_seq_id"), 301);
  EXPECT_EQ(gathers.at("record_id"), 300);
  EXPECT_EQ(gathers.at("input_sizes"), json({{5}}));
  EXPECT_EQ(gathers.at("output_sizes"), json({{20}}));
  EXPECT_EQ(gathers.at("input_dtypes"), json({"BFloat16"}));
  EXPECT_EQ(gathers.at("state"), "completed");
  const json& exchanges = last.at("entries").at(1);
  EXPECT_EQ(exchanges.at("profiling_name"), "nccl:all_to_all");
  EXPECT_EQ(exchanges.at("input_sizes"), json({{24}}));
  EXPECT_EQ(exchanges.at("state"), "started");
  const json& receives = last.at("entries").at(3);
  EXPECT_EQ(receives.at("profiling_name"), "nccl:recv 1<-0") << "ranks of the communicator";
  EXPECT_EQ(receives.at("process_group"), json({"0x9", "undefined"}));
  EXPECT_EQ(receives.at("is_p2p"), true);
  EXPECT_EQ(receives.at("p2p_seq_id"), 1);
  EXPECT_EQ(receives.at("retired"), false);
  EXPECT_EQ(records.value().at(0).at("entries").at(3).at("profiling_name"), "nccl:send 0->1");
}

TEST(FlightRecorder, RanksOfOneProcessAreToldApart) {
  json threads = {{"ranks", json::array()}};
  for (int rank = 0; rank < 3; ++rank) {
    threads["ranks"].push_back({{"comm", "0x1"},
                                {"rank", rank},
                                {"calls", 1},
                                {"members", {"", "", ""}},
                                {"records", {call("broadcast", 0, rank + 1, "started", 2)}}});
  }
  const auto records = make_flight_records({threads});
  ASSERT_TRUE(records.has_value());
  ASSERT_EQ(records.value().size(), 3U);
  EXPECT_EQ(records.value().at(2).at("entries").at(0).at("input_sizes"), json({{3}}));
}

TEST(FlightRecorder, AnswersOfOtherVersionsAreRefused) {
  json other = answer(0);
  other["ranks"][0].erase("members");
  EXPECT_THAT(make_flight_records({other}).error().message(),
              testing::HasSubstr("another version of Plexus"));
  EXPECT_THAT(make_flight_records({{{"ranks", json::array()}}}).error().message(),
              testing::HasSubstr("in no communicator"));
}

TEST(FlightRecorder, APickleIsAsPythonReadsIt) {
  using namespace std::string_literals;
  EXPECT_EQ(format_pickle(json{{"ab", {1, true, nullptr}}}),
            "\x80\x02}(X\x02\x00\x00\x00"
            "ab](\x8a\x09\x01\x00\x00\x00\x00\x00\x00\x00\x00\x88Neu."s);
  EXPECT_EQ(format_pickle(json(-2)), "\x80\x02\x8a\x09\xfe\xff\xff\xff\xff\xff\xff\xff\xff."s);
  EXPECT_EQ(format_pickle(json(UINT64_MAX)),
            "\x80\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00."s);
}

}  // namespace
}  // namespace plexus
