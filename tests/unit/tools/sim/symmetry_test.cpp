// SPDX-License-Identifier: Apache-2.0
// One rank per class gives the same bits as all ranks.
#include "tests/unit/tools/sim/jobs.hpp"

namespace plexus {
namespace {

/// All ranks, and one of each class: every rank ends at the same time, to the last bit.
void expect_same_bits(const SimJob& job) {
  const auto all = make_network(job);
  const auto some = make_symmetric_network(job);
  const SimResult whole = run(all);
  const SimResult part = run(some);
  ASSERT_EQ(some.value().class_of.size(), static_cast<size_t>(job.nranks));
  EXPECT_LE(some.value().ranks.size(), all.value().ranks.size());
  for (size_t rank = 0; rank < whole.rank_us.size(); ++rank) {
    ASSERT_EQ(whole.rank_us[rank], part.rank_us[some.value().class_of[rank]])
        << job.algorithm->name << " of " << job.nranks << ", rank " << rank;
  }
}

SimJob with_costs(SimJob job) {
  job.costs = {.near = {.latency_us = 0.7, .us_per_byte = 1.0 / 90'000, .message_us = 0.1},
               .far = {.latency_us = 3.1, .us_per_byte = 1.0 / 23'000, .message_us = 0.3},
               .wide = {.latency_us = 900, .us_per_byte = 1.0 / 1'200, .message_us = 0.3},
               .reduce_us_per_byte = 1.0 / 71'000,
               .copy_us_per_byte = 1.0 / 130'000};
  return job;
}

TEST(Symmetry, GivesTheSameBitsForEveryAlgorithm) {
  for (const Algorithm* const algorithm : simulated_algorithms()) {
    for (const int nranks : {2, 3, 8, 13, 24}) {
      for (const int per_node : {1, 4}) {
        SimJob job = with_costs(make_job(algorithm->name, nranks, 3'000'000));
        job.ranks_per_node = per_node;
        job.channels = 2;
        job.slot_bytes = 1 << 16;
        expect_same_bits(job);
      }
    }
  }
}

TEST(Symmetry, GivesTheSameBitsFor512Ranks) {
  for (const char* const name :
       {"ring_all_reduce", "tree_all_reduce", "recursive_doubling_all_reduce", "binomial_broadcast",
        "pat_all_gather", "tree_broadcast"}) {
    SimJob job = with_costs(make_job(name, 512, 1 << 18));
    job.ranks_per_node = 6;
    job.channels = job.algorithm->variants;
    expect_same_bits(job);
  }
}

TEST(Symmetry, GivesTheSameBitsWhereProgramsAreSeenToBeTheSameAllAroundTheRing) {
  for (const char* const name : {"ring_all_reduce", "pat_all_gather"}) {
    for (const int per_node : {1, 4}) {
      SimJob job = with_costs(make_job(name, 512, 1 << 20));
      job.ranks_per_node = per_node;
      const auto shifted = make_symmetric_network(job, 0);
      ASSERT_TRUE(shifted.has_value());
      EXPECT_EQ(shifted.value().ranks.size(), static_cast<size_t>(per_node)) << name;
      const SimResult part = run(shifted);
      const SimResult whole = run(make_network(job));
      for (size_t rank = 0; rank < whole.rank_us.size(); ++rank) {
        ASSERT_EQ(whole.rank_us[rank], part.rank_us[shifted.value().class_of[rank]]) << name;
      }
    }
  }
}

TEST(Symmetry, GivesTheSameBitsWhereProgramsAreTheSameAllAroundEachDatacenter) {
  // with three, chunks are taken in the same order everywhere, and no two ranks are alike
  for (const int datacenters : {2}) {
    for (const int per_node : {1, 4}) {
      const int size = 48;
      SimJob job = with_costs(make_job("hierarchical_all_reduce", datacenters * size, 1 << 20));
      job.ranks_per_node = per_node;
      for (int rank = 0; rank < job.nranks; ++rank) {
        job.datacenters.push_back(rank / size);
      }
      const auto shifted = make_symmetric_network(job, 0);
      ASSERT_TRUE(shifted.has_value());
      EXPECT_EQ(shifted.value().ranks.size(), static_cast<size_t>(datacenters * per_node));
      const SimResult part = run(shifted);
      const SimResult whole = run(make_network(job));
      for (size_t rank = 0; rank < whole.rank_us.size(); ++rank) {
        ASSERT_EQ(whole.rank_us[rank], part.rank_us[shifted.value().class_of[rank]]) << rank;
      }
    }
  }
}

TEST(Symmetry, OfUnequalDatacentersIsNotAssumed) {
  SimJob job = with_costs(make_job("hierarchical_all_reduce", 12, 1 << 16));
  job.datacenters = {0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1};
  const auto network = make_symmetric_network(job, 0);
  ASSERT_TRUE(network.has_value());
  EXPECT_GT(network.value().ranks.size(), 2U);
}

TEST(Symmetry, NeedsFewRanksOfMany) {
  const auto ring = make_symmetric_network(make_job("ring_all_reduce", 512, 1 << 20));
  ASSERT_TRUE(ring.has_value());
  EXPECT_EQ(ring.value().ranks.size(), 1U);
  const auto doubling =
      make_symmetric_network(make_job("recursive_doubling_all_reduce", 4096, 1 << 20));
  ASSERT_TRUE(doubling.has_value());
  EXPECT_EQ(doubling.value().ranks.size(), 1U);
  // In a binary tree the first child is served first, so that every rank has times of its own.
  const auto tree = make_symmetric_network(make_job("tree_all_reduce", 512, 1 << 20));
  ASSERT_TRUE(tree.has_value());
  EXPECT_EQ(tree.value().ranks.size(), 512U);
}

TEST(Symmetry, IsTheFormulaOfRingsOfThousandsOfRanks) {
  for (const int nranks : {4096, 8192}) {
    const auto bytes = static_cast<uint64_t>(nranks) * 1024;
    const auto ring = make_symmetric_network(make_job("ring_all_reduce", nranks, bytes), 0);
    EXPECT_NEAR(run(ring).time_us, 2 * (nranks - 1) * (5 + 1.0), 1e-3);
  }
}

}  // namespace
}  // namespace plexus
