// SPDX-License-Identifier: Apache-2.0
// Hierarchical algorithms are proved for datacenters of many shapes in any placement, and their
// traffic between datacenters is compared with the minimum.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "kernels/program/cost.hpp"
#include "kernels/program/verify.hpp"

namespace plexus {
namespace {

const std::vector<std::vector<int>> kShapes = {
    {1, 1},          {1, 2},     {2, 1},    {2, 2},     {3, 3},
    {4, 4},          {3, 5},     {1, 7},    {7, 7},     {8, 8},
    {2, 16},         {16, 1},    {1, 1, 1}, {2, 2, 2},  {2, 3, 4},
    {1, 7, 7},       {1, 1, 16}, {4, 4, 4}, {33, 2, 5}, {5, 5, 5, 5},
    {1, 2, 3, 4, 5}, {2, 65},    {65, 2},   {64, 1, 3}, {1, 1, 1, 1, 1, 1, 1, 1}};

/// The datacenter of every place: consecutive or round-robin.
std::vector<int> place(const std::vector<int>& sizes, bool dealt_out) {
  std::vector<int> datacenters;
  std::vector<int> left = sizes;
  for (size_t at = 0; std::any_of(left.begin(), left.end(), [](int size) { return size > 0; });) {
    if (left[at] > 0) {
      --left[at];
      datacenters.push_back(static_cast<int>(at));
      at = dealt_out ? (at + 1) % sizes.size() : at;
    } else {
      at = (at + 1) % sizes.size();
    }
  }
  return datacenters;
}

std::vector<const Algorithm*> hierarchical_rows() {
  std::vector<const Algorithm*> rows;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.for_datacenters) {
      rows.push_back(&algorithm);
    }
  }
  return rows;
}

LoopCost cost_of(const char* algorithm, const std::vector<int>& sizes) {
  const std::vector<int> datacenters = place(sizes, false);
  std::vector<int> ring(datacenters.size());
  std::iota(ring.begin(), ring.end(), 0);
  return count_cost(
      *find_algorithm(algorithm),
      {.rank = 0, .ring = ring, .root = 0, .variant = 0, .nodes = {}, .datacenters = datacenters});
}

int64_t xdc_in_all(const LoopCost& cost) {
  return std::accumulate(cost.xdc_chunks.begin(), cost.xdc_chunks.end(), int64_t{0});
}

class Hierarchical : public testing::TestWithParam<const Algorithm*> {};

TEST_P(Hierarchical, IsProvedForDatacentersOfAnySizesAndPlacement) {
  const Algorithm& algorithm = *GetParam();
  for (const std::vector<int>& sizes : kShapes) {
    for (const bool dealt_out : {false, true}) {
      const std::vector<int> datacenters = place(sizes, dealt_out);
      const int nranks = static_cast<int>(datacenters.size());
      if (nranks > algorithm.nranks_max) {
        EXPECT_EQ(algorithm.nranks_max, kOperandsMax);
        continue;
      }
      const int roots = is_rooted(algorithm.collective) ? nranks : 1;
      for (int root = 0; root<roots; root += nranks> 20 ? 7 : 1) {
        for (const bool in_place : {false, true}) {
          const VerifyResult result = verify({.algorithm = &algorithm,
                                              .nranks = nranks,
                                              .root = root,
                                              .in_place = in_place,
                                              .slots = kSlots,
                                              .variant = 0,
                                              .datacenters = datacenters});
          ASSERT_TRUE(result.proved)
              << fmt::format("{}", sizes) << " root " << root << ": " << result.reason;
          ASSERT_LE(result.slots_needed, kSlots / 2) << fmt::format("{}", sizes);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table,
                         Hierarchical,
                         testing::ValuesIn(hierarchical_rows()),
                         [](const auto& row) { return std::string(row.param->name); });

/// One edge less than datacenters joins them, each used up and down.
TEST(TreeOverDatacenters, IsProvedAndCrossesEachBorderUpAndDown) {
  const Algorithm& algorithm = *find_algorithm("tree_all_reduce");
  for (const std::vector<int>& sizes : kShapes) {
    for (const bool dealt_out : {false, true}) {
      const std::vector<int> datacenters = place(sizes, dealt_out);
      std::vector<int> ring(datacenters.size());
      std::iota(ring.begin(), ring.end(), 0);
      for (const int variant : {0, 1}) {
        RecordInput input = {.rank = 0,
                             .ring = ring,
                             .root = 0,
                             .variant = variant,
                             .nodes = {},
                             .datacenters = datacenters};
        EXPECT_EQ(xdc_in_all(count_cost(algorithm, input)),
                  2 * (static_cast<int64_t>(sizes.size()) - 1));
        std::vector<Program> programs;
        for (input.rank = 0; input.rank < static_cast<int>(ring.size()); ++input.rank) {
          programs.push_back(algorithm.record(input));
        }
        EXPECT_EQ(verify_programs(programs, Collective::kAllReduce, 0, true, kSlots).reason, "");
      }
    }
  }
}

/// Each datacenter's ranks are on hosts of two.
TEST(TreeOverDatacenters, CrossesAlongTheTreeOfDatacentersOnly) {
  const Algorithm& algorithm = *find_algorithm("tree_all_reduce");
  const std::vector<std::vector<int>> trees = {
      {-1, 0, 0, 0, 0}, {1, -1, 1, 2, 3}, {2, 2, -1, 1, 0}, {-1, 4, 1, 0, 0}};
  for (const std::vector<int>& above : trees) {
    for (const std::vector<int>& sizes :
         {std::vector<int>{1, 1, 1, 1, 1}, {8, 1, 3, 2, 5}, {2, 7, 4, 6, 1}}) {
      const std::vector<int> datacenters = place(sizes, false);
      std::vector<int> ring(datacenters.size());
      std::iota(ring.begin(), ring.end(), 0);
      std::vector<int> nodes;
      for (int at = 0, in_node = 0; at < static_cast<int>(ring.size()); ++at) {
        const bool begins =
            at == 0 || in_node == 2 ||
            datacenters[static_cast<size_t>(at)] != datacenters[static_cast<size_t>(at) - 1];
        in_node = begins ? 1 : in_node + 1;
        if (begins) {
          nodes.push_back(at);
        }
      }
      for (const int variant : {0, 1}) {
        RecordInput input = {.rank = 0,
                             .ring = ring,
                             .root = 0,
                             .variant = variant,
                             .nodes = nodes,
                             .datacenters = datacenters,
                             .above = above};
        const LoopCost cost = count_cost(algorithm, input);
        for (size_t from = 0; from < above.size(); ++from) {
          for (size_t to = 0; to < above.size(); ++to) {
            const bool joined =
                above[from] == static_cast<int>(to) || above[to] == static_cast<int>(from);
            EXPECT_EQ(cost.xdc_chunks[from * above.size() + to], joined ? 1 : 0);
          }
        }
        std::vector<Program> programs;
        for (input.rank = 0; input.rank < static_cast<int>(ring.size()); ++input.rank) {
          programs.push_back(algorithm.record(input));
        }
        EXPECT_EQ(verify_programs(programs, Collective::kAllReduce, 0, true, kSlots).reason, "")
            << fmt::format("{} {}", above, sizes);
      }
    }
  }
}

TEST(TreeOverDatacenters, RootInTheMiddleHalvesTheRounds) {
  const Algorithm& algorithm = *find_algorithm("tree_all_reduce");
  const std::vector<int> ring = {0, 1, 2, 3, 4};
  const std::vector<int> middle = {1, 2, -1, 2, 3};
  RecordInput input = {.rank = 0, .ring = ring, .datacenters = ring};
  EXPECT_EQ(count_cost(algorithm, input).xdc_rounds, 8) << "a chain";
  input.above = middle;
  EXPECT_EQ(count_cost(algorithm, input).xdc_rounds, 4);
}

/// The most that there are: 63 datacenters below one rank, which may have another of its host below
/// it; two hosts share them.
TEST(TreeOverDatacenters, StarOf64IsProved) {
  const Algorithm& algorithm = *find_algorithm("tree_all_reduce");
  constexpr int kCount = 64;
  std::vector<int> above(kCount, 0);
  above[0] = -1;
  struct Hub {
    int ranks;
    int hosts;
    int children_max;
  };
  for (const Hub hub : {Hub{1, 1, 63}, Hub{2, 1, 64}, Hub{2, 2, 33}}) {
    std::vector<int> ring(static_cast<size_t>(kCount - 1 + hub.ranks));
    std::iota(ring.begin(), ring.end(), 0);
    std::vector<int> datacenters;
    std::vector<int> nodes;
    for (const int rank : ring) {
      datacenters.push_back(std::max(0, rank - hub.ranks + 1));
      if (rank == 0 || rank >= hub.ranks || hub.hosts > 1) {
        nodes.push_back(rank);
      }
    }
    RecordInput input = {
        .rank = 0, .ring = ring, .nodes = nodes, .datacenters = datacenters, .above = above};
    std::vector<Program> programs;
    programs.reserve(ring.size());
    for (input.rank = 0; input.rank < static_cast<int>(ring.size()); ++input.rank) {
      programs.push_back(algorithm.record(input));
    }
    const VerifyResult result = verify_programs(programs, Collective::kAllReduce, 0, true, kSlots);
    EXPECT_EQ(result.reason, "");
    EXPECT_EQ(result.chunks_moved, hub.children_max);
  }
}

TEST(HierarchicalCost, AllReduceOfTwoDatacentersSendsTheMessageOnceOutOfEach) {
  for (const std::vector<int>& sizes :
       {std::vector<int>{4, 4}, {3, 5}, {1, 7}, {7, 7}, {2, 2}, {1, 1}}) {
    const LoopCost cost = cost_of("hierarchical_all_reduce", sizes);
    EXPECT_EQ(cost.xdc_chunks[1], cost.chunks);
    EXPECT_EQ(cost.xdc_chunks[2], cost.chunks);
    EXPECT_EQ(cost.xdc_rounds, 1);
  }
}

TEST(HierarchicalCost, DcPairsTakeOneRoundInTheDatacenterAndOneBetweenDatacenters) {
  for (const std::vector<int>& sizes :
       {std::vector<int>{4, 4}, {3, 5}, {1, 7}, {2, 3, 4}, {5, 5, 5, 5}}) {
    const LoopCost cost = cost_of("dc_pairs_all_reduce", sizes);
    const auto datacenters = static_cast<int64_t>(sizes.size());
    EXPECT_EQ(cost.rounds, 2) << fmt::format("{}", sizes);
    EXPECT_EQ(cost.xdc_rounds, 1) << fmt::format("{}", sizes);
    EXPECT_EQ(xdc_in_all(cost), (datacenters - 1) * std::accumulate(sizes.begin(), sizes.end(), 0));
  }
}

TEST(HierarchicalCost, AllReduceMovesTheLeastBetweenAnyNumberOfDatacenters) {
  for (const std::vector<int>& sizes :
       {std::vector<int>{4, 4}, {2, 3, 4}, {5, 5, 5, 5}, {1, 7, 7}, {1, 1, 1, 1, 1}}) {
    const auto datacenters = static_cast<int64_t>(sizes.size());
    const LoopCost cost = cost_of("hierarchical_all_reduce", sizes);
    EXPECT_EQ(xdc_in_all(cost), 2 * (datacenters - 1) * cost.chunks) << fmt::format("{}", sizes);
    if (std::count(sizes.begin(), sizes.end(), sizes.front()) == datacenters) {
      EXPECT_EQ(cost.xdc_rounds, datacenters == 2 ? 1 : 2) << fmt::format("{}", sizes);
    }
  }
}

TEST(HierarchicalCost, BlocksCrossEveryBorderOnce) {
  for (const std::vector<int>& sizes : {std::vector<int>{4, 4}, {3, 5}, {2, 3, 4}, {1, 7}}) {
    const auto datacenters = static_cast<int64_t>(sizes.size());
    const int64_t nranks = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    for (const char* const name : {"hierarchical_all_gather", "hierarchical_reduce_scatter"}) {
      EXPECT_EQ(xdc_in_all(cost_of(name, sizes)), (datacenters - 1) * nranks) << name;
    }
    for (const char* const name : {"hierarchical_broadcast", "hierarchical_reduce"}) {
      const LoopCost cost = cost_of(name, sizes);
      EXPECT_EQ(xdc_in_all(cost), (datacenters - 1) * cost.chunks) << name;
    }
  }
}

TEST(HierarchicalCost, RingMovesTwiceAsMuchBetweenTwoDatacenters) {
  const LoopCost cost = cost_of("ring_all_reduce", {4, 4});
  EXPECT_EQ(cost.xdc_chunks[1], 2 * (8 - 1));  // for 8 chunks
  EXPECT_GE(cost.xdc_rounds, 3);
}

TEST(HierarchicalCost, AllToAllNeedsOneConnectionPerDatacenterWhereTheyAreEqual) {
  const std::vector<int> datacenters = place({5, 5, 5}, false);
  std::vector<int> ring(datacenters.size());
  std::iota(ring.begin(), ring.end(), 0);
  const Program program = find_algorithm("hierarchical_all_to_all")
                              ->record({.rank = 3,
                                        .ring = ring,
                                        .root = 0,
                                        .variant = 0,
                                        .nodes = {},
                                        .datacenters = datacenters});
  std::vector<int> xdc;
  for (const int peer : program.peers) {
    if (datacenters[static_cast<size_t>(peer)] != 0) {
      xdc.push_back(peer);
    }
  }
  std::sort(xdc.begin(), xdc.end());
  EXPECT_EQ(std::unique(xdc.begin(), xdc.end()) - xdc.begin(), 2);
}

TEST(Cost, IsWhatTheTableSaysOfFlatAlgorithms) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.for_datacenters || algorithm.network_cost != nullptr ||
        is_point_to_point(algorithm.collective)) {
      continue;
    }
    std::vector<int> ring(6);
    std::iota(ring.begin(), ring.end(), 0);
    const LoopCost cost = count_cost(algorithm, {.rank = 0, .ring = ring, .root = 0});
    EXPECT_EQ(cost.rounds, algorithm.rounds(6)) << algorithm.name;
    EXPECT_EQ(cost.chunks_in_all, algorithm.chunks_in_all(6)) << algorithm.name;
    EXPECT_EQ(cost.xdc_rounds, 0) << algorithm.name;
  }
}

}  // namespace
}  // namespace plexus
