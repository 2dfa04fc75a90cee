// SPDX-License-Identifier: Apache-2.0
// Hierarchical algorithms: proved for data centres of many shapes, in any placement, and what they
// move between centres counted against the least possible.
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

/// The data centre of every place: one centre after the other, or dealt out like cards.
std::vector<int> place(const std::vector<int>& sizes, bool dealt_out) {
  std::vector<int> centres;
  std::vector<int> left = sizes;
  for (size_t at = 0; std::any_of(left.begin(), left.end(), [](int size) { return size > 0; });) {
    if (left[at] > 0) {
      --left[at];
      centres.push_back(static_cast<int>(at));
      at = dealt_out ? (at + 1) % sizes.size() : at;
    } else {
      at = (at + 1) % sizes.size();
    }
  }
  return centres;
}

std::vector<const Algorithm*> hierarchical_rows() {
  std::vector<const Algorithm*> rows;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.for_centres) {
      rows.push_back(&algorithm);
    }
  }
  return rows;
}

LoopCost cost_of(const char* algorithm, const std::vector<int>& sizes) {
  const std::vector<int> centres = place(sizes, false);
  std::vector<int> ring(centres.size());
  std::iota(ring.begin(), ring.end(), 0);
  return count_cost(
      *find_algorithm(algorithm),
      {.rank = 0, .ring = ring, .root = 0, .variant = 0, .nodes = {}, .centres = centres});
}

int64_t far_in_all(const LoopCost& cost) {
  return std::accumulate(cost.far_chunks.begin(), cost.far_chunks.end(), int64_t{0});
}

class Hierarchical : public testing::TestWithParam<const Algorithm*> {};

TEST_P(Hierarchical, IsProvedForDataCentresOfAnySizesAndPlacement) {
  const Algorithm& algorithm = *GetParam();
  for (const std::vector<int>& sizes : kShapes) {
    for (const bool dealt_out : {false, true}) {
      const std::vector<int> centres = place(sizes, dealt_out);
      const int nranks = static_cast<int>(centres.size());
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
                                              .centres = centres});
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

/// Edges between centres: one fewer than centres, each used up and down.
TEST(TreeOverCentres, IsProvedAndCrossesEachBorderUpAndDown) {
  const Algorithm& algorithm = *find_algorithm("tree_all_reduce");
  for (const std::vector<int>& sizes : kShapes) {
    for (const bool dealt_out : {false, true}) {
      const std::vector<int> centres = place(sizes, dealt_out);
      std::vector<int> ring(centres.size());
      std::iota(ring.begin(), ring.end(), 0);
      for (const int variant : {0, 1}) {
        RecordInput input = {.rank = 0,
                             .ring = ring,
                             .root = 0,
                             .variant = variant,
                             .nodes = {},
                             .centres = centres};
        EXPECT_EQ(far_in_all(count_cost(algorithm, input)),
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

TEST(HierarchicalCost, AllReduceOfTwoCentresSendsTheMessageOnceOutOfEach) {
  for (const std::vector<int>& sizes :
       {std::vector<int>{4, 4}, {3, 5}, {1, 7}, {7, 7}, {2, 2}, {1, 1}}) {
    const LoopCost cost = cost_of("hierarchical_all_reduce", sizes);
    EXPECT_EQ(cost.far_chunks[1], cost.chunks);
    EXPECT_EQ(cost.far_chunks[2], cost.chunks);
    EXPECT_EQ(cost.far_rounds, 1);
  }
}

TEST(HierarchicalCost, CentrePairsTakeOneRoundInTheCentreAndOneBetweenCentres) {
  for (const std::vector<int>& sizes :
       {std::vector<int>{4, 4}, {3, 5}, {1, 7}, {2, 3, 4}, {5, 5, 5, 5}}) {
    const LoopCost cost = cost_of("centre_pairs_all_reduce", sizes);
    const auto centres = static_cast<int64_t>(sizes.size());
    EXPECT_EQ(cost.rounds, 2) << fmt::format("{}", sizes);
    EXPECT_EQ(cost.far_rounds, 1) << fmt::format("{}", sizes);
    EXPECT_EQ(far_in_all(cost), (centres - 1) * std::accumulate(sizes.begin(), sizes.end(), 0));
  }
}

TEST(HierarchicalCost, AllReduceMovesTheLeastBetweenAnyNumberOfCentres) {
  for (const std::vector<int>& sizes :
       {std::vector<int>{4, 4}, {2, 3, 4}, {5, 5, 5, 5}, {1, 7, 7}, {1, 1, 1, 1, 1}}) {
    const auto centres = static_cast<int64_t>(sizes.size());
    const LoopCost cost = cost_of("hierarchical_all_reduce", sizes);
    EXPECT_EQ(far_in_all(cost), 2 * (centres - 1) * cost.chunks) << fmt::format("{}", sizes);
    if (std::count(sizes.begin(), sizes.end(), sizes.front()) == centres) {
      EXPECT_EQ(cost.far_rounds, centres == 2 ? 1 : 2) << fmt::format("{}", sizes);
    }
  }
}

TEST(HierarchicalCost, BlocksCrossEveryBorderOnce) {
  for (const std::vector<int>& sizes : {std::vector<int>{4, 4}, {3, 5}, {2, 3, 4}, {1, 7}}) {
    const auto centres = static_cast<int64_t>(sizes.size());
    const int64_t nranks = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    for (const char* const name : {"hierarchical_all_gather", "hierarchical_reduce_scatter"}) {
      EXPECT_EQ(far_in_all(cost_of(name, sizes)), (centres - 1) * nranks) << name;
    }
    for (const char* const name : {"hierarchical_broadcast", "hierarchical_reduce"}) {
      const LoopCost cost = cost_of(name, sizes);
      EXPECT_EQ(far_in_all(cost), (centres - 1) * cost.chunks) << name;
    }
  }
}

TEST(HierarchicalCost, RingMovesTwiceAsMuchBetweenTwoCentres) {
  const LoopCost cost = cost_of("ring_all_reduce", {4, 4});
  EXPECT_EQ(cost.far_chunks[1], 2 * (8 - 1));  // of 8 chunks
  EXPECT_GE(cost.far_rounds, 3);
}

TEST(HierarchicalCost, AllToAllNeedsOneConnectionPerCentreWhereTheyAreEqual) {
  const std::vector<int> centres = place({5, 5, 5}, false);
  std::vector<int> ring(centres.size());
  std::iota(ring.begin(), ring.end(), 0);
  const Program program =
      find_algorithm("hierarchical_all_to_all")
          ->record(
              {.rank = 3, .ring = ring, .root = 0, .variant = 0, .nodes = {}, .centres = centres});
  std::vector<int> far;
  for (const int peer : program.peers) {
    if (centres[static_cast<size_t>(peer)] != 0) {
      far.push_back(peer);
    }
  }
  std::sort(far.begin(), far.end());
  EXPECT_EQ(std::unique(far.begin(), far.end()) - far.begin(), 2);
}

TEST(Cost, IsWhatTheTableSaysOfFlatAlgorithms) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.for_centres || algorithm.network_cost != nullptr ||
        is_point_to_point(algorithm.collective)) {
      continue;
    }
    std::vector<int> ring(6);
    std::iota(ring.begin(), ring.end(), 0);
    const LoopCost cost = count_cost(algorithm, {.rank = 0, .ring = ring, .root = 0});
    EXPECT_EQ(cost.rounds, algorithm.rounds(6)) << algorithm.name;
    EXPECT_EQ(cost.chunks_in_all, algorithm.chunks_in_all(6)) << algorithm.name;
    EXPECT_EQ(cost.far_rounds, 0) << algorithm.name;
  }
}

}  // namespace
}  // namespace plexus
