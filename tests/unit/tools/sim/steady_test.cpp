// SPDX-License-Identifier: Apache-2.0
// Skipped periods give the same bits as all loops. Who watches every slice gets all loops.
#include "tools/sim/steady.hpp"

#include "tests/unit/tools/sim/jobs.hpp"

namespace plexus {
namespace {

/// Costs that are no multiples of anything.
SimJob with_costs(SimJob job) {
  job.costs = {.near = {.latency_us = 0.7, .us_per_byte = 1.0 / 90'000, .message_us = 0.1},
               .far = {.latency_us = 3.1, .us_per_byte = 1.0 / 23'000, .message_us = 0.3},
               .wide = {.latency_us = 900, .us_per_byte = 1.0 / 1'200, .message_us = 0.3},
               .reduce_us_per_byte = 1.0 / 71'000,
               .copy_us_per_byte = 1.0 / 130'000};
  return job;
}

/// The part of the events that was skipped.
double expect_same_bits(const SimJob& job) {
  const auto network = make_symmetric_network(job);
  uint64_t slices = 0;
  const SimResult whole =
      run(network, nullptr, {.on_slice = [&](const SimSlice&) { ++slices; }, .on_rate = {}});
  const SimResult part = run(network);
  EXPECT_EQ(whole.events_skipped, 0U);
  EXPECT_GT(slices, 0U);
  EXPECT_EQ(whole.rank_us, part.rank_us) << job.algorithm->name << " of " << job.nranks;
  EXPECT_EQ(whole.messages, part.messages);
  EXPECT_EQ(whole.events, part.events);
  EXPECT_EQ(whole.wide_bytes, part.wide_bytes);
  return static_cast<double>(part.events_skipped) / static_cast<double>(part.events);
}

TEST(SteadyState, GivesTheSameBitsForEveryAlgorithm) {
  int skipped = 0;
  for (const Algorithm* const algorithm : simulated_algorithms()) {
    for (const int nranks : {2, 3, 8, 13}) {
      SimJob job = with_costs(make_job(algorithm->name, nranks, 3'000'000));
      job.ranks_per_node = 4;
      job.channels = 2;
      job.slot_bytes = 1 << 12;
      skipped += expect_same_bits(job) > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(skipped, 20);
}

TEST(SteadyState, GivesTheSameBitsForTreesOfUpTo512Ranks) {
  for (const int nranks : {30, 100, 512}) {
    SimJob job = with_costs(make_job("tree_all_reduce", nranks, uint64_t{1} << 30));
    job.ranks_per_node = 6;
    job.channels = 2;
    EXPECT_GT(expect_same_bits(job), 0.2) << nranks;
  }
}

TEST(SteadyState, GivesTheSameBitsForUnequalChannelsCallAfterCall) {
  // one channel has a loop more than the others
  SimJob job = with_costs(make_job("chain_broadcast", 12, uint64_t{4096} * (3 * 400 + 1)));
  job.ranks_per_node = 4;
  job.channels = 3;
  job.slot_bytes = 4096;
  job.calls = 3;
  EXPECT_GT(expect_same_bits(job), 0.1);
}

TEST(SteadyState, GivesTheSameBitsBetweenDatacenters) {
  double skipped = 0;
  for (const char* const name : {"hierarchical_all_reduce", "tree_all_reduce"}) {
    SimJob job = with_costs(make_job(name, 24, uint64_t{1} << 28));
    job.ranks_per_node = 4;
    job.channels = job.algorithm->variants;
    job.slot_bytes = 1 << 14;
    for (int rank = 0; rank < job.nranks; ++rank) {
      job.datacenters.push_back(rank / 12);
    }
    skipped += expect_same_bits(job);
  }
  EXPECT_GT(skipped, 0.1);
}

TEST(SteadyState, BeginsWithTheFirstReturnAndEndsWithTheNext) {
  using Found = SteadyState::Found;
  const auto state = [](uint64_t value) {
    SimState made;
    made.mix(value);
    return made;
  };
  SteadyState steady;
  EXPECT_EQ(steady.look(state(1)), Found::kNothing);
  EXPECT_EQ(steady.look(state(2)), Found::kNothing);
  EXPECT_EQ(steady.look(state(3)), Found::kNothing);
  EXPECT_EQ(steady.look(state(2)), Found::kBegin);
  EXPECT_EQ(steady.look(state(3)), Found::kNothing);
  EXPECT_EQ(steady.look(state(2)), Found::kEnd);
  steady.forget();
  EXPECT_EQ(steady.look(state(2)), Found::kNothing);
  for (uint64_t value = 0; value < SteadyState::kStatesMax - 2; ++value) {
    ASSERT_EQ(steady.look(state(1000 + value)), Found::kNothing);
  }
  EXPECT_EQ(steady.look(state(9)), Found::kGivenUp);
}

TEST(SteadyState, OfAHugeCallIsItsRate) {
  // 2^40 bytes by a chain: 1 us per KiB and a loop of 64 KiB each
  SimJob job = make_job("chain_broadcast", 64, uint64_t{1} << 40);
  job.slot_bytes = 1 << 16;
  const SimResult result = run(make_network(job));
  EXPECT_NEAR(result.time_us, 1073741824.0 + 63 * 5 + 62 * 64, 1);
  EXPECT_LT(result.events - result.events_skipped, result.events / 1000);
}

}  // namespace
}  // namespace plexus
