// SPDX-License-Identifier: Apache-2.0
// A trace of each rank: joined, each rank does its own, and collectives meet.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/workload/predict.hpp"

namespace plexus {
namespace {

Result<Workload> joined(const std::vector<std::string>& files) {
  std::vector<Workload> ranks;
  for (const std::string& file : files) {
    auto work = parse_workload(file);
    EXPECT_TRUE(work.has_value()) << work.error().message();
    ranks.push_back(std::move(work).value());
  }
  return join_ranks(std::move(ranks));
}

/// A collective takes a us per 1,000 bytes, a message 2 us more.
WorkPrediction predicted(const Workload& work) {
  auto made = predict(
      work, {.nranks = work.nranks,
             .call_us = [](const WorkloadCall& call) -> Result<double> {
               return static_cast<double>(call.bytes) / 1000;
             },
             .is_near = [](const WorkloadCall&) { return false; },
             .link = [](int, int) { return WorkLink{.latency_us = 2, .us_per_byte = 1e-3}; }});
  EXPECT_TRUE(made.has_value()) << made.error().message();
  return std::move(made).value();
}

/// Computing, then an all-reduce of the communicator.
std::string chakra(int compute_us, const std::string& communicator, int bytes) {
  return fmt::format(
      R"({{"nodes": [
          {{"id": 0, "name": "forward", "type": "COMP_NODE", "duration_micros": {}}},
          {{"id": 1, "name": "sum", "type": "COMM_COLL_NODE", "data_deps": [0],
           "attr": [{{"name": "comm_type", "int64_val": 0}}, {{"name": "comm_size", "int64_val": {}}},
                    {{"name": "pg_name", "string_val": "{}"}}]}}]}})",
      compute_us, bytes, communicator);
}

std::string message(bool sends, int peer) {
  return fmt::format(R"({{"nodes": [{{"id": 0, "type": "{}", "attr": [
      {{"name": "{}", "int32_val": {}}}, {{"name": "comm_size", "int64_val": 3000}}]}}]}})",
                     sends ? "COMM_SEND_NODE" : "COMM_RECV_NODE", sends ? "comm_dst" : "comm_src",
                     peer);
}

TEST(WorkloadJoin, ACollectiveBeginsWithTheLastOfItsRanks) {
  const auto work = joined({chakra(10, "0", 5000), chakra(70, "0", 5000), chakra(20, "0", 5000)});
  ASSERT_TRUE(work.has_value()) << work.error().message();
  EXPECT_EQ(work.value().nranks, 3);
  const WorkPrediction made = predicted(work.value());
  EXPECT_DOUBLE_EQ(made.time_us, 75);
  ASSERT_EQ(made.path.size(), 2U);
  EXPECT_EQ(made.path[0].name, "forward") << "rank 1's, for which the others wait";
  EXPECT_DOUBLE_EQ(made.path[0].time_us, 70);
  EXPECT_DOUBLE_EQ(made.path[1].time_us, 5);
  EXPECT_EQ(describe(work.value()),
            "3 files, one of each rank (Chakra trace (JSON)): 3 collective calls, 14.6 KiB in "
            "buffers, 3 parts of computing (0.100 ms), 3 ranks, groups process group 0 of 3");
}

TEST(WorkloadJoin, CommunicatorsDoNotWaitForEachOther) {
  const auto work = joined(
      {chakra(10, "a", 5000), chakra(70, "b", 5000), chakra(20, "a", 5000), chakra(30, "b", 5000)});
  ASSERT_TRUE(work.has_value()) << work.error().message();
  ASSERT_EQ(work.value().groups.size(), 3U);
  EXPECT_EQ(work.value().groups[1].nranks, 2);
  EXPECT_EQ(work.value().groups[1].stride, 2) << "ranks 0 and 2";
  EXPECT_EQ(work.value().groups[2].nranks, 2);
  const WorkPrediction made = predicted(work.value());
  EXPECT_DOUBLE_EQ(made.time_us, 75);
  EXPECT_EQ(made.rank, 1);
}

TEST(WorkloadJoin, GroupsOfOneNameAndSizeArePlacedAsTheyAre) {
  const std::string step = R"({"groups": [{"name": "tp", "ranks": 2}],
      "calls": [{"compute_us": %}, {"collective": "all_gather", "bytes": 1000, "group": "tp"}]})";
  std::vector<std::string> files;
  for (const char* const us : {"1", "9", "40", "5"}) {
    files.push_back(step);
    files.back().replace(files.back().find('%'), 1, us);
  }
  const auto work = joined(files);
  ASSERT_TRUE(work.has_value()) << work.error().message();
  ASSERT_EQ(work.value().groups.size(), 3U) << "all, {0, 1}, {2, 3}";
  for (const WorkloadCall& call : work.value().calls) {
    if (call.kind == WorkKind::kCall) {
      EXPECT_EQ(call.group, call.rank < 2 ? 1U : 2U);
    }
  }
  EXPECT_DOUBLE_EQ(predicted(work.value()).time_us, 41);
}

TEST(WorkloadJoin, MessagesGoToThePeerThatTheFileNames) {
  // Nothing in rank 2's file says that it is rank 2's.
  const std::string idle = R"({"calls": [{"compute_us": 1}]})";
  const auto work = joined({idle, message(false, 2), message(true, 1)});
  ASSERT_TRUE(work.has_value()) << work.error().message();
  EXPECT_DOUBLE_EQ(predicted(work.value()).time_us, 5);
  const auto lost = joined({idle, message(false, 0), message(true, 1)});
  ASSERT_TRUE(lost.has_value());
  const auto made = predict(
      lost.value(),
      {.nranks = 3, .call_us = {}, .is_near = {}, .link = [](int, int) { return WorkLink{}; }});
  ASSERT_TRUE(made.has_error());
  EXPECT_THAT(made.error().message(), testing::HasSubstr("rank 1 waits for a message of rank 0"));
}

TEST(WorkloadJoin, FilesThatDoNotBelongTogetherAreRefused) {
  const auto refused = [](const std::vector<std::string>& files) {
    auto work = joined(files);
    EXPECT_TRUE(work.has_error());
    return work.has_error() ? work.error().message() : "";
  };
  const std::string kineto = R"({"distributedInfo": {"rank": 1, "world_size": 2}, "traceEvents": [
      {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1, "dur": 3, "args": {"stream": 7}},
      {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ts": 10,
       "dur": 5, "args": {"stream": 20, "Collective name": "allreduce", "In msg nelems": 1024,
       "Out msg nelems": 1024, "dtype": "Float", "Group size": 2, "Process Group Name": "0"}}]})";
  EXPECT_THAT(refused({kineto, kineto}), testing::HasSubstr("file 0 is rank 1's by what it says"));
  EXPECT_THAT(refused({chakra(1, "0", 8), kineto, kineto}), testing::HasSubstr("file 2 is rank 1"));
  EXPECT_THAT(refused({message(true, 5), message(false, 0)}),
              testing::HasSubstr("file 0 is of a job of 6 ranks, and there are 2 files"));
  const std::string goal = "num_ranks 2\nrank 0 {\na: calc 5\n}\nrank 1 {\nb: calc 5\n}\n";
  EXPECT_THAT(refused({goal, goal}), testing::HasSubstr("says what each rank does"));
  EXPECT_THAT(join_ranks({}).error().message(), testing::HasSubstr("not 0"));
}

TEST(WorkloadJoin, RanksThatCallDifferentCollectivesAreNamed) {
  std::string other = chakra(1, "0", 5000);
  other.replace(other.find("\"int64_val\": 0"), 14, "\"int64_val\": 2");
  const auto work = joined({chakra(1, "0", 5000), other});
  ASSERT_TRUE(work.has_value());
  const auto made = predict(work.value(), {});
  ASSERT_TRUE(made.has_error());
  EXPECT_THAT(made.error().message(),
              testing::HasSubstr("collective 1 of process group 0 is all_reduce of process group 0 "
                                 "on rank 0 and all_gather"));
}

TEST(WorkloadJoin, CollectivesInCrossedOrderWaitForEachOther) {
  const auto two = [](const char* first, const char* second) {
    return fmt::format(R"({{"groups": [{{"name": "x", "ranks": 2}}, {{"name": "y", "ranks": 2}}],
        "calls": [{{"collective": "broadcast", "bytes": 8, "group": "{}"}},
                  {{"collective": "broadcast", "bytes": 8, "group": "{}"}}]}})",
                       first, second);
  };
  const auto work = joined({two("x", "y"), two("y", "x")});
  ASSERT_TRUE(work.has_value());
  const auto made = predict(work.value(), {.nranks = 2,
                                           .call_us = {},
                                           .is_near = [](const WorkloadCall&) { return true; },
                                           .link = {}});
  ASSERT_TRUE(made.has_error());
  EXPECT_THAT(made.error().message(), testing::HasSubstr("wait for each other"));
}

}  // namespace
}  // namespace plexus
