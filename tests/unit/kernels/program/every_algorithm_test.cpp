// SPDX-License-Identifier: Apache-2.0
// Every algorithm of the table is proved, with the costs in the table.
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/program/verify.hpp"
#include "tests/unit/kernels/program/programs.hpp"

namespace plexus {
namespace {

int log2_up(int nranks) {
  int log2 = 0;
  while (1 << log2 < nranks) {
    ++log2;
  }
  return log2;
}

class EveryAlgorithm : public testing::TestWithParam<const Algorithm*> {};

TEST_P(EveryAlgorithm, IsProvedForUpTo64RanksInBothForms) {
  const Algorithm& algorithm = *GetParam();
  constexpr int kRanksMax = 64;
  constexpr int kAllRootsMax = 16;
  for (int nranks = 1; nranks <= std::min(kRanksMax, algorithm.nranks_max); ++nranks) {
    const int roots = is_rooted(algorithm.collective) ? nranks : 1;
    const int stride = nranks <= kAllRootsMax ? 1 : nranks / 3;
    for (int root = 0; root < roots; root += stride) {
      for (int form = 0; form < 2 * algorithm.variants; ++form) {
        const bool in_place = form % 2 == 1;
        const VerifyResult result = verify({.algorithm = &algorithm,
                                            .nranks = nranks,
                                            .root = root,
                                            .in_place = in_place,
                                            .variant = form / 2});
        ASSERT_TRUE(result.proved) << nranks << " ranks, root " << root << ", variant " << form / 2
                                   << (in_place ? ", in place: " : ": ") << result.reason;
        ASSERT_EQ(result.reason, "");
        // Chunks are one slot long; if half of the slots suffice, they may be two.
        ASSERT_LE(result.slots_needed, kSlots / 2);
        ASSERT_LE(result.lanes, algorithm.lanes);
      }
    }
  }
}

TEST_P(EveryAlgorithm, IsProvedWithMessagesOfSeveralChunks) {
  const Algorithm& algorithm = *GetParam();
  if (algorithm.joined.rounds == nullptr) {
    return;  // it has no such form
  }
  std::vector<int> numbers = {96, 127, 128, 255, 256};
  for (int nranks = 2; nranks <= 64; ++nranks) {
    numbers.push_back(nranks);
  }
  const bool is_torus = std::string_view(algorithm.family) == "torus";  // its rounds: a root of n
  for (const int nranks : numbers) {
    const int root = is_rooted(algorithm.collective) ? nranks / 2 : 0;
    for (const bool in_place : {false, true}) {
      const VerifyResult result = verify({.algorithm = &algorithm,
                                          .nranks = nranks,
                                          .root = root,
                                          .in_place = in_place,
                                          .joins = true});
      ASSERT_EQ(result.reason, "") << nranks << " ranks" << (in_place ? ", in place" : "");
      ASSERT_LE(result.slots_needed, kSlots / 2);
      ASSERT_LE(result.rounds, is_torus ? algorithm.rounds(nranks) : 2 * (log2_up(nranks) + 1));
    }
  }
}

/// What `program` would be with a step for each message.
Program sketch_of(Program program) {
  for (Lane& lane : program.lanes) {
    std::vector<Step> steps;
    std::vector<int> place_of;  // by step
    for (const Step& step : lane.steps) {
      if (continues_message(lane, step)) {
        ++steps.back().chunks;
      } else {
        steps.push_back(step);
      }
      place_of.push_back(static_cast<int>(steps.size()) - 1);
    }
    for (Lane& other : program.lanes) {
      for (Step& step : &other == &lane ? steps : other.steps) {
        if (step.after.lane == &lane - program.lanes.data()) {
          step.after.step = place_of[static_cast<size_t>(step.after.step)];
        }
      }
    }
    lane.steps = std::move(steps);
  }
  return program;
}

TEST_P(EveryAlgorithm, IsSketchedByAStepForEachMessage) {
  const Algorithm& algorithm = *GetParam();
  if (algorithm.joined.rounds == nullptr) {
    return;  // it has no such form
  }
  for (const int nranks : {2, 3, 8, 13, 32, 48}) {
    std::vector<int> ring(static_cast<size_t>(nranks));
    std::iota(ring.begin(), ring.end(), 0);
    for (int rank = 0; rank < nranks; rank += 5) {
      const RecordInput whole{.rank = rank, .ring = ring, .joins = true};
      RecordInput input = whole;
      input.sketches = true;
      const Program sketch = algorithm.record(input);
      const Program expected = sketch_of(algorithm.record(whole));
      ASSERT_EQ(sketch.scratch_chunks, expected.scratch_chunks);
      ASSERT_EQ(sketch.lanes.size(), expected.lanes.size());
      for (size_t lane = 0; lane < sketch.lanes.size(); ++lane) {
        ASSERT_EQ(sketch.lanes[lane].steps.size(), expected.lanes[lane].steps.size());
        for (size_t at = 0; at < sketch.lanes[lane].steps.size(); ++at) {
          const Step& step = sketch.lanes[lane].steps[at];
          const Step& other = expected.lanes[lane].steps[at];
          ASSERT_EQ(step.chunks, other.chunks) << nranks << " ranks, rank " << rank;
          ASSERT_EQ(step.after, other.after);
          ASSERT_TRUE(std::ranges::equal(sketch.recv_peers(step), expected.recv_peers(other)));
          ASSERT_TRUE(std::ranges::equal(sketch.send_peers(step), expected.send_peers(other)));
        }
      }
    }
  }
}

/// Above 64 ranks: multiples of a power of two, a power of two and the number below it.
TEST_P(EveryAlgorithm, IsProvedFor96And127And128Ranks) {
  const Algorithm& algorithm = *GetParam();
  for (const int nranks : {96, 127, 128}) {
    const int root = is_rooted(algorithm.collective) ? nranks / 2 : 0;
    for (int variant = 0; variant < algorithm.variants && nranks <= algorithm.nranks_max;
         ++variant) {
      EXPECT_EQ(verify({.algorithm = &algorithm,
                        .nranks = nranks,
                        .root = root,
                        .in_place = true,
                        .variant = variant})
                    .reason,
                "")
          << nranks << " ranks, variant " << variant;
    }
  }
}

/// Only algorithms with few chunks; the others take seconds each: `plexus verify --ranks 1000`.
TEST_P(EveryAlgorithm, IsProvedFor1000RanksWhereTheChunksAreFew) {
  const Algorithm& algorithm = *GetParam();
  constexpr int kRanks = 1000;
  constexpr int kStepsMax = 100'000;
  if (kRanks > algorithm.nranks_max) {
    EXPECT_EQ(algorithm.nranks_max, kOperandsMax);
    return;
  }
  size_t steps = 0;
  std::vector<int> ring = in_order(kRanks);
  for (const int rank : {0, kRanks / 2, kRanks - 1}) {
    const int root = is_point_to_point(algorithm.collective) ? (rank + 1) % kRanks : 0;
    steps =
        std::max(steps, algorithm.record({.rank = rank, .ring = ring, .root = root}).step_count());
  }
  if (steps * kRanks <= kStepsMax || is_rooted(algorithm.collective)) {
    EXPECT_EQ(verify({.algorithm = &algorithm, .nranks = kRanks, .root = kRanks / 3}).reason, "");
  } else {
    EXPECT_GE(algorithm.record({.rank = 0, .ring = ring, .root = 1}).chunks, kRanks / 2)
        << "a program with few chunks is long";
  }
}

std::vector<const Algorithm*> all_rows() {
  std::vector<const Algorithm*> rows;
  for (const Algorithm& algorithm : algorithms()) {
    rows.push_back(&algorithm);
  }
  return rows;
}
INSTANTIATE_TEST_SUITE_P(Table, EveryAlgorithm, testing::ValuesIn(all_rows()), [](const auto& row) {
  return std::string(row.param->name);
});

TEST(Verify, ProvesRingsInAnyOrderOfRanks) {
  const std::vector<int> ring = {2, 0, 4, 3, 1};
  for (const bool in_place : {false, true}) {
    EXPECT_EQ(reason(record("ring_all_reduce", ring), Collective::kAllReduce, in_place), "");
    EXPECT_EQ(reason(record("ring_all_gather", ring), Collective::kAllGather, in_place), "");
    EXPECT_EQ(reason(record("ring_reduce_scatter", ring), Collective::kReduceScatter, in_place),
              "");
  }
}

TEST(Verify, ProvesRingAllReduceOfManyRanks) {
  const VerifyResult result = verify(
      {.algorithm = find_algorithm("ring_all_reduce"), .nranks = 300, .root = 0, .in_place = true});
  EXPECT_EQ(result.reason, "");
  EXPECT_EQ(result.steps, 300U * (2 * 300 - 1));
  EXPECT_EQ(result.lanes, 1);
  EXPECT_EQ(result.rounds, 2 * 299);
  EXPECT_EQ(result.chunks_moved, 2 * 299);
}

TEST(Verify, TreeOverNodesIsProvedInAnyOrder) {
  for (const std::vector<int>& nodes :
       {std::vector<int>{0}, {0, 5}, {0, 1, 2}, {0, 3, 4, 8, 9}, {0, 2, 4, 6, 8}}) {
    for (const std::vector<int>& ring :
         {in_order(10), std::vector<int>{0, 2, 4, 6, 8, 1, 3, 5, 7, 9}}) {
      for (const int variant : {0, 1}) {
        Programs programs;
        for (int rank = 0; rank < 10; ++rank) {
          programs.push_back(
              find_algorithm("tree_all_reduce")
                  ->record(
                      {.rank = rank, .ring = ring, .root = 0, .variant = variant, .nodes = nodes}));
        }
        EXPECT_EQ(reason(programs, Collective::kAllReduce), "");
        EXPECT_EQ(reason(programs, Collective::kAllReduce, true), "");
      }
    }
  }
}

TEST(Verify, RejectsCostThatIsNotTheTables) {
  const auto refusal = [](const auto& spoil) {
    Algorithm algorithm = *find_algorithm("ring_reduce_scatter");
    spoil(algorithm);
    return verify({.algorithm = &algorithm, .nranks = 4, .root = 0, .in_place = false}).reason;
  };
  constexpr auto kWrong = [](int nranks) { return nranks; };
  EXPECT_EQ(refusal([&](Algorithm& row) { row.rounds = kWrong; }),
            "has 3 rounds, but the table says 4");
  EXPECT_EQ(refusal([&](Algorithm& row) { row.chunks_moved = kWrong; }),
            "has 3 chunks moved at a rank, but the table says 4");
  EXPECT_EQ(refusal([&](Algorithm& row) {
              row.chunks_in_all = [](int nranks) { return int64_t{nranks}; };
            }),
            "has 12 chunks sent in total, but the table says 4");
  EXPECT_EQ(refusal([&](Algorithm& row) { row.chunks_reduced = kWrong; }),
            "has 3 chunks combined at a rank, but the table says 4");
  EXPECT_EQ(refusal([&](Algorithm& row) { row.chunks = [](int nranks) { return nranks - 1; }; }),
            "has 4 chunks, but the table says 3");
}

}  // namespace
}  // namespace plexus
