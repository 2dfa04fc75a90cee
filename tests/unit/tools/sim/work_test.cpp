// SPDX-License-Identifier: Apache-2.0
// Ranks as threads on the cores of a node, and what messages cost them.
#include "tools/sim/work.hpp"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "tests/unit/tools/sim/jobs.hpp"

namespace plexus {
namespace {

constexpr double kSend = 2;
constexpr double kRecv = 3;
constexpr double kCombine = 5;
constexpr double kSlot = 1024;

/// Each message costs the same, whatever its size.
SimCurve always(double us) { return {.bytes = {1e9}, .us = {us}, .node_bytes_per_byte = 1e9}; }

SimJob job_on_cores(const char* algorithm, int nranks, int cores, uint64_t bytes = 4096) {
  SimJob job = make_job(algorithm, nranks, bytes);
  const SimEnds ends{.send = always(kSend),
                     .recv = always(kRecv),
                     .combine = always(kCombine),
                     .combine_apart = always(kCombine)};
  const SimLink link{.latency_us = 1e-6,
                     .work = {.slot_bytes = kSlot,
                              .both_ways = ends,
                              .one_way = ends,
                              .copy = {},
                              .one_core = {},
                              .crowd_us_per_byte = {}}};
  job.costs = {.near = link, .far = link, .wide = link};
  job.ranks_per_node = nranks;
  job.cores = cores;
  job.exact_spans = true;
  return job;
}

TEST(SimWork, CostsBothEndsOfAMessageTheirTime) {
  EXPECT_NEAR(time_of(job_on_cores("recursive_doubling_all_reduce", 2, 2)), kSend + kCombine, 1e-3);
  EXPECT_NEAR(time_of(job_on_cores("chain_broadcast", 2, 2)), kSend + kRecv, 1e-3);
}

TEST(SimWork, IsDoneByTheCoresThatThereAre) {
  // Two rounds, in which each rank sends and combines once; on one core one rank after the other.
  const double alone = time_of(job_on_cores("recursive_doubling_all_reduce", 4, 4));
  EXPECT_NEAR(alone, 2 * (kSend + kCombine), 1e-3);
  EXPECT_NEAR(time_of(job_on_cores("recursive_doubling_all_reduce", 4, 1)), 4 * alone, 1e-3);
  SimJob job = job_on_cores("recursive_doubling_all_reduce", 4, 1);
  job.turn_us = 1;
  EXPECT_GT(time_of(job), 4 * alone + 4);
}

TEST(SimWork, WaitsForTheTurnsOfRanksThatHaveNothingToDo) {
  // A chain on one core: each turn goes to the next rank of the core. That is the next of the
  // chain, or, where ranks are in another order, one that still has to wait.
  SimJob job = job_on_cores("chain_broadcast", 4, 1);
  job.turn_us = 10;
  const double work = 3 * kSend + 3 * kRecv;
  EXPECT_NEAR(time_of(job), work + 3 * job.turn_us, 1e-3);
  double longest = 0;
  for (job.shuffle = 1; job.shuffle <= 16; ++job.shuffle) {
    const double time = time_of(job);
    EXPECT_EQ(time, time_of(job));
    longest = std::max(longest, (time - work) / job.turn_us);
  }
  EXPECT_GE(longest, 6);
}

TEST(SimWork, OnCoresOfBoundRanksOnlyTheirOrderIsDrawn) {
  // Each message of the chain goes to the other core, wherever its rank is in the order of that.
  SimJob job = job_on_cores("chain_broadcast", 8, 2);
  job.costs.near.work.one_core = {.bytes = {8}, .numbers = {0}};
  job.are_bound = true;
  for (job.shuffle = 1; job.shuffle <= 16; ++job.shuffle) {
    EXPECT_NEAR(time_of(job), 7 * (kSend + kRecv), 1e-3);
  }
  job.are_bound = false;
  job.shuffle = 1;
  EXPECT_LT(time_of(job), 7 * (kSend + kRecv) - 1);
}

TEST(SimWork, OfAMessageBetweenRanksOfOneCoreIsThePartThatWasMeasured) {
  SimJob job = job_on_cores("chain_broadcast", 2, 1, 1000);
  job.costs.near.work.one_core = {.bytes = {100, 1900}, .numbers = {0.25, 0.75}};
  EXPECT_NEAR(time_of(job), (kSend + kRecv) / 2, 1e-3);
}

TEST(SimWork, OfACallIsAfterItsLastMessage) {
  SimJob job = job_on_cores("recursive_doubling_all_reduce", 2, 2);
  job.calls = 10;
  job.call_us = 4;
  EXPECT_NEAR(time_of(job), 10 * (kSend + kCombine + 4), 1e-3);
}

TEST(SimWork, LetsASenderRunAheadByTheSlotsOfAConnection) {
  // The root is done with call after call while the other rank still receives.
  SimJob job = job_on_cores("chain_broadcast", 2, 2);
  job.calls = 6;
  EXPECT_NEAR(time_of(job), kSend + 6 * kRecv, 1e-3);
}

TEST(SimWork, LetsASenderOfSmallMessagesRunAheadByTheHeadersOfAConnection) {
  // On one core the root makes call after call before it yields, and the other rank then takes
  // them.
  constexpr int kCalls = 20;
  SimJob job = job_on_cores("chain_broadcast", 2, 1, 8);
  job.calls = kCalls;
  job.turn_us = 10;
  const double with_slots = time_of(job);
  job.costs.near.work.small_bytes = 8;
  EXPECT_NEAR(time_of(job), kCalls * (kSend + kRecv) + job.turn_us, 1e-3);
  EXPECT_GT(with_slots, kCalls * (kSend + kRecv) + 4 * job.turn_us);
}

TEST(SimWork, OfARootedCallIsThatOfOneWay) {
  SimJob job = job_on_cores("chain_broadcast", 2, 2);
  job.costs.near.work.one_way.recv = always(7);
  EXPECT_NEAR(time_of(job), kSend + kRecv, 1e-3);
  job.is_one_way = true;
  EXPECT_NEAR(time_of(job), kSend + 7, 1e-3);
}

TEST(SimWork, HandsMessagesOverBeforeAStepEnds) {
  SimJob job = job_on_cores("chain_broadcast", 2, 2);
  job.costs.near.work.early_us = 1.5;
  EXPECT_NEAR(time_of(job), kSend - 1.5 + kRecv, 1e-3);
}

TEST(SimWork, SkipsChunksThatAreEmpty) {
  // 16 elements are one chunk of 4: it goes around the ring, and back to the others.
  const SimResult result =
      run(make_network(job_on_cores("ring_all_reduce", 4, 4, 16 * sizeof(float))));
  EXPECT_EQ(result.messages, 6U);
  SimJob full = job_on_cores("ring_all_reduce", 4, 4, 64 * sizeof(float));
  EXPECT_EQ(run(make_network(full)).messages, 4U * 6);
}

TEST(SimWork, NeedsAllRanksWhereTheyShareCores) {
  SimJob job = job_on_cores("ring_all_reduce", 8, 2);
  job.exact_spans = false;
  const auto some = make_symmetric_network(job);
  ASSERT_TRUE(some.has_value());
  ASSERT_LT(some.value().ranks.size(), 8U);
  const auto result = simulate(some.value());
  ASSERT_TRUE(result.has_error());
  EXPECT_THAT(result.error().message(), testing::HasSubstr("share cores"));
}

TEST(SimCurve, IsInterpolatedAndSlowerWhereBuffersLeaveTheCaches) {
  const SimCurve curve{.bytes = {100, 1000, 10'000}, .us = {1, 10, 300}, .node_bytes_per_byte = 2};
  EXPECT_DOUBLE_EQ(curve.at(10), 1);
  EXPECT_DOUBLE_EQ(curve.at(550), 5.5);
  EXPECT_DOUBLE_EQ(curve.at(20'000), 600);
  // alone, of a slot of 1000 bytes: 10 us, and what each byte of a call of 10,000 takes longer than
  // one of two slots
  const double of_two = curve.at(2000) / 2;
  EXPECT_DOUBLE_EQ(curve.of_message(1000, 2000, 1000, true), 10);
  EXPECT_DOUBLE_EQ(curve.of_message(1000, 20'000, 1000, true), 10 + 30 - of_two);
  EXPECT_DOUBLE_EQ(curve.of_message(100, 20'000, 1000, true), 1 + (30 - of_two) / 10);
  // one of several: as those of a call of at least two
  EXPECT_DOUBLE_EQ(curve.of_message(1000, 2000, 1000, false), of_two);
  EXPECT_DOUBLE_EQ(curve.of_message(1000, 20'000, 1000, false), 30);
}

TEST(SimCurve, IsThatOfACallWithAsManyBytesOfBuffersAndSlots) {
  const SimCurve curve{
      .bytes = {1000, 10'000}, .us = {10, 300}, .node_bytes_per_byte = 2, .connections = 1};
  EXPECT_DOUBLE_EQ(curve.of_message(1000, 28'000, 1000, false), 30);  // 8 slots of 1000 bytes
}

TEST(SimTable, IsInterpolatedAndEndsWithItsLastPoint) {
  const SimTable table{.bytes = {1000, 3000}, .numbers = {1, 2}};
  EXPECT_EQ(table.at(1, 9), 1);
  EXPECT_EQ(table.at(2000, 9), 1.5);
  EXPECT_EQ(table.at(1e9, 9), 2);
  EXPECT_EQ(SimTable{}.at(5, 9), 9);
}

TEST(SimWork, OfACrowdIsLongerWhereRanksShareCores) {
  SimJob job = job_on_cores("chain_broadcast", 2, 2, 1000);
  job.costs.near.work.crowd_us_per_byte = {.bytes = {1}, .numbers = {0.01}};
  EXPECT_NEAR(time_of(job), kSend + kRecv, 1e-3);
  job.cores = 1;
  EXPECT_NEAR(time_of(job), kSend + kRecv + 10, 1e-3);
}

}  // namespace
}  // namespace plexus
