// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/loop_costs.hpp"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "core/tuning/choose_algorithm.hpp"

namespace plexus::testing {
namespace {

ChannelOrder order_of(const std::vector<int>& sizes) {
  ChannelOrder order;
  for (size_t datacenter = 0; datacenter < sizes.size(); ++datacenter) {
    order.nodes.push_back(static_cast<int>(order.datacenters.size()));
    order.datacenters.insert(order.datacenters.end(), static_cast<size_t>(sizes[datacenter]),
                             static_cast<int>(datacenter));
  }
  order.ring.resize(order.datacenters.size());
  std::iota(order.ring.begin(), order.ring.end(), 0);
  return order;
}

/// Bytes that leave the busiest datacenter, per byte of the call.
double share_out(const LoopCost& cost) {
  return static_cast<double>(cost.xdc_chunks_out()) / cost.chunks;
}

TEST(LoopCosts, ManyRanksCostBetweenDatacentersWhatFewInTheSameProportionsDo) {
  const LoopCosts few(order_of({12, 20}), true);
  const LoopCosts many(order_of({1200, 2000}), true);
  for (const char* const name : {"ring_all_reduce", "ring_all_gather", "hierarchical_all_reduce"}) {
    const Algorithm& algorithm = *find_algorithm(name);
    EXPECT_NEAR(share_out(few.of(algorithm)), share_out(many.of(algorithm)), 0.1) << name;
  }
}

TEST(LoopCosts, OfAFileWithMessagesOfSeveralChunksAreCountedInItsPrograms) {
  const ChannelOrder order = order_of({2, 2});
  const LoopCosts costs(order, true);
  const Algorithm& bruck = *find_algorithm("bruck_all_gather");
  RecordedAlgorithm recorded;
  for (const int rank : order.ring) {
    recorded.programs.push_back(bruck.record({.rank = rank, .ring = order.ring, .joins = true}));
    recorded.apart.push_back(bruck.record({.rank = rank, .ring = order.ring}));
  }
  recorded.message_chunks = static_cast<int>(chunks_of_longest_message(recorded.programs));
  ASSERT_EQ(recorded.message_chunks, 2);
  Algorithm file;
  file.name = file.family = "file";
  file.collective = Collective::kAllGather;
  file.nranks_max = 4;
  file.recorded = &recorded;
  const Choice choice{
      .algorithm = &file, .protocol = Protocol::kSimple, .channels = 1, .chunk_bytes = 1 << 16};
  const LoopCost cost = cost_of(choice, {.collective = Collective::kAllGather,
                                         .size_bytes = 64,
                                         .nranks = 4,
                                         .shares_memory = false,
                                         .costs = &costs});
  EXPECT_EQ(cost.chunks_moved, 3);
  EXPECT_EQ(cost.rounds, 2);
}

TEST(LoopCosts, LeastIsWhatHierarchicalAlgorithmsMove) {
  const std::vector<int> sizes = {2, 3, 4};
  const LoopCosts costs(order_of(sizes), true);
  for (const Algorithm& algorithm : algorithms()) {
    // Except for small messages, for which rounds count more than bytes.
    if (algorithm.for_datacenters && std::string_view(algorithm.family) != "dcpairs") {
      const LoopCost& cost = costs.of(algorithm);
      const auto moved = std::accumulate(cost.xdc_chunks.begin(), cost.xdc_chunks.end(), 0.0);
      EXPECT_NEAR(moved / cost.chunks, least_xdc_share(algorithm.collective, sizes, 0), 1e-9)
          << algorithm.name;
    }
  }
}

ChannelOrder hosts_of(int hosts, int ranks_per_host) {
  ChannelOrder order;
  for (int host = 0; host < hosts; ++host) {
    order.nodes.push_back(host * ranks_per_host);
  }
  order.ring.resize(static_cast<size_t>(hosts * ranks_per_host));
  std::iota(order.ring.begin(), order.ring.end(), 0);
  return order;
}

LoopCost cost_over_hosts(const char* name, int hosts, int ranks_per_host) {
  return LoopCosts(hosts_of(hosts, ranks_per_host), true).of(*find_algorithm(name));
}

/// A chunk of a ring's all-reduce takes 14 steps through 8 ranks, and every fourth is between
/// hosts; the last rank of a host sends all that it sends to another one.
TEST(LoopCosts, CountWhatGoesBetweenHosts) {
  const LoopCost ring = cost_over_hosts("ring_all_reduce", 2, 4);
  EXPECT_EQ(ring.net_rounds, 4);
  EXPECT_EQ(ring.net_chunks, 14);
  EXPECT_EQ(ring.net_chunks_in_all, 2 * 14);
  const LoopCost doubling = cost_over_hosts("recursive_doubling_all_reduce", 4, 4);
  EXPECT_EQ(doubling.rounds, 4);
  EXPECT_EQ(doubling.net_rounds, 2);
  EXPECT_EQ(doubling.net_chunks, 2);
  EXPECT_EQ(doubling.net_chunks_in_all, 2 * 16);
  EXPECT_EQ(cost_over_hosts("ring_all_reduce", 1, 8).net_rounds, 0);
}

TEST(LoopCosts, ManyRanksCostBetweenHostsWhatTheFirstHostsDo) {
  const LoopCost ring = cost_over_hosts("ring_all_reduce", 64, 8);
  EXPECT_NEAR(ring.net_rounds, ring.rounds / 8.0, 2);
  EXPECT_EQ(ring.net_chunks, ring.chunks_moved);
  EXPECT_EQ(ring.net_chunks_in_all, ring.chunks_in_all / 8);
  const LoopCost doubling = cost_over_hosts("recursive_doubling_all_reduce", 64, 8);
  EXPECT_EQ(doubling.rounds, 9);
  EXPECT_EQ(doubling.net_rounds, 6);
  const LoopCost large_hosts = cost_over_hosts("recursive_doubling_all_reduce", 4, 128);
  EXPECT_GT(large_hosts.net_rounds, 0);
  EXPECT_LT(large_hosts.net_rounds, large_hosts.rounds);
}

TEST(LoopCosts, HierarchicalNeedsSeveralDatacentersThatReachEachOther) {
  const auto reason_of = [](const LoopCosts& costs, const char* filter) {
    const ChoiceInput input{.collective = Collective::kAllReduce,
                            .size_bytes = 1 << 20,
                            .nranks = 8,
                            .slot_bytes = 1 << 17,
                            .costs = &costs};
    for (const Candidate& candidate :
         list_candidates(input, AlgorithmFilter::parse(filter, "Simple").value())) {
      if (candidate.choice.algorithm->for_datacenters &&
          candidate.choice.protocol == Protocol::kSimple) {
        return candidate.reason;
      }
    }
    return std::string("not listed");
  };
  const LoopCosts one(order_of({8}), true);
  const LoopCosts two(order_of({4, 4}), true);
  const LoopCosts apart(order_of({3, 2, 3}), false);
  EXPECT_EQ(reason_of(one, ""), "all ranks are in one datacenter");
  EXPECT_EQ(reason_of(one, "hierarchical"), "");
  EXPECT_EQ(reason_of(two, ""), "");
  EXPECT_EQ(reason_of(apart, ""), "some datacenters have no direct link");
}

}  // namespace
}  // namespace plexus::testing
