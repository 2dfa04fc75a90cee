// SPDX-License-Identifier: Apache-2.0
// The costs of the table's algorithms as formulas of nranks: rounds, chunks moved by a rank, chunks
// sent by all ranks, chunks combined by a rank, chunks per loop. The verifier compares them with
// the programs.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/algorithms/binary_tree.hpp"
#include "kernels/algorithms/bruck.hpp"
#include "kernels/algorithms/butterfly_all_reduce.hpp"
#include "kernels/algorithms/collnet_all_reduce.hpp"
#include "kernels/algorithms/pat.hpp"
#include "kernels/algorithms/torus_all_reduce.hpp"
#include "kernels/program/algorithms.hpp"

namespace plexus::formulas {

constexpr int all(int nranks) { return nranks; }
constexpr int twice(int nranks) { return 2 * nranks; }
constexpr int butterfly_width(int nranks) { return Butterfly::of(nranks).p; }
constexpr int zero(int /*nranks*/) { return 0; }
constexpr int one(int /*nranks*/) { return 1; }
constexpr int two(int /*nranks*/) { return 2; }
constexpr int others(int nranks) { return nranks - 1; }
constexpr int half(int nranks) { return nranks / 2; }
constexpr int twice_others(int nranks) { return 2 * (nranks - 1); }
inline int log2_up(int nranks) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(nranks - 1)));
}

// With two ranks, both directions share one lane.
constexpr int bidirectional_rounds(int nranks) { return nranks == 2 ? 4 : 2 * (nranks - 1); }
constexpr int bidirectional_chunks(int nranks) { return 4 * (nranks - 1); }

inline int tree_rounds(int nranks) {
  int deepest = 0;
  for (int place = 0; place < nranks; ++place) {
    int depth = 0;
    for (int up = first_tree(nranks, place).up; up != kNoPlace; up = first_tree(nranks, up).up) {
      ++depth;
    }
    deepest = std::max(deepest, depth);
  }
  return 2 * deepest;
}
inline int tree_broadcast_rounds(int nranks) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(nranks))) - 1;
}
constexpr int tree_broadcast_chunks(int nranks) { return std::min(nranks - 1, 2); }
inline int tree_chunks(int nranks) {
  int most = 0;
  for (int place = 0; place < nranks; ++place) {
    const TreePlace tree = first_tree(nranks, place);
    most = std::max(most, (tree.up == kNoPlace ? 0 : 1) + (tree.down[0] == kNoPlace ? 0 : 1) +
                              (tree.down[1] == kNoPlace ? 0 : 1));
  }
  return most;
}

inline int tree_children(int nranks) {
  int most = 0;
  for (int place = 0; place < nranks; ++place) {
    const TreePlace tree = first_tree(nranks, place);
    most = std::max(most, (tree.down[0] == kNoPlace ? 0 : 1) + (tree.down[1] == kNoPlace ? 0 : 1));
  }
  return most;
}

// A left-over rank's contribution takes all steps only to the place whose bits are all different;
// if that place also has a left-over rank, the result needs one more message to it.
inline int doubling_rounds(int nranks) {
  const Butterfly fly = Butterfly::of(nranks);
  return fly.steps + (fly.left_over > 0 ? 1 : 0) + (2 * fly.left_over > fly.p ? 1 : 0);
}
inline int doubling_chunks(int nranks) {
  const Butterfly fly = Butterfly::of(nranks);
  return fly.steps + (fly.left_over > 0 ? 1 : 0);
}
/// As of doubling. Places whose digits to base four all differ begin at a quarter of p.
inline int quadrupling_rounds(int nranks) {
  const Butterfly fly = Butterfly::of(nranks);
  return (fly.steps + 1) / 2 + (fly.left_over > 0 ? 1 : 0) +
         (fly.p >= 4 && 4 * fly.left_over > fly.p ? 1 : 0);
}
inline int quadrupling_chunks(int nranks) {
  const Butterfly fly = Butterfly::of(nranks);
  return fly.steps / 2 * 3 + fly.steps % 2 + (fly.left_over > 0 ? 1 : 0);
}
inline int butterfly_rounds(int nranks) {
  const Butterfly fly = Butterfly::of(nranks);
  return 2 * fly.steps + (fly.left_over > 0 ? 2 : 0);
}
inline int butterfly_chunks(int nranks) {
  const Butterfly fly = Butterfly::of(nranks);
  return 2 * (fly.p - 1) + (fly.left_over > 0 ? fly.p : 0);
}

inline int butterfly_reduced(int nranks) {
  const Butterfly fly = Butterfly::of(nranks);
  return fly.p - 1 + (fly.left_over > 0 ? fly.p : 0);
}

inline int butterfly_message(int nranks) {
  const Butterfly fly = Butterfly::of(nranks);
  return fly.left_over > 0 ? fly.p : std::max(fly.p / 2, 1);
}

inline int bruck_all_gather_message(int nranks) {
  int most = 1;
  for (int distance = 1; distance < nranks; distance *= 2) {
    most = std::max(most, std::min(distance, nranks - distance));
  }
  return most;
}
inline int bruck_all_gather_rounds(int nranks) {
  int rounds = 0;
  for (int distance = 1; distance < nranks; distance *= 2) {
    rounds += std::min(distance, nranks - distance) > distance / 2 ? 1 : 0;
  }
  return rounds;
}
inline int pat_all_gather_rounds(int nranks) {
  int rounds = 1;
  for (int distance = 1; distance < nranks; distance *= 2) {
    rounds += count_at_distance(nranks, distance) > 1 ? 1 : 0;
  }
  return rounds;
}

inline int batches(int count) { return (count + kBatch - 1) / kBatch; }
inline int torus_rounds(int nranks) {
  const Torus torus = Torus::of(nranks);
  return 2 * (torus.rows - 1) +
         2 * (torus.columns - 1) * ((torus.rows + kTorusBatch - 1) / kTorusBatch);
}
inline int torus_joined_rounds(int nranks) {
  const Torus torus = Torus::of(nranks);
  return 2 * (torus.rows - 1) + 2 * (torus.columns - 1);
}
inline int torus_message(int nranks) {
  const Torus torus = Torus::of(nranks);
  return torus.columns == 1 ? 1 : torus.rows;
}
inline int pat_reduce_scatter_rounds(int nranks) {
  int rounds = 0;
  for (int distance = 1; distance < nranks; distance *= 2) {
    rounds += batches(count_at_distance(nranks, distance));
  }
  return rounds;
}
inline int bruck_all_to_all_rounds(int nranks) {
  int rounds = 0;
  for (int bit = 1; bit < nranks; bit *= 2) {
    rounds += batches(count_with_bit(nranks, bit));
  }
  return rounds;
}
inline int bruck_all_to_all_message(int nranks) {
  int most = 1;
  for (int bit = 1; bit < nranks; bit *= 2) {
    most = std::max(most, count_with_bit(nranks, bit));
  }
  return most;
}
inline int bruck_all_to_all_chunks(int nranks) {
  int chunks = 0;
  for (int bit = 1; bit < nranks; bit *= 2) {
    chunks += count_with_bit(nranks, bit);
  }
  return chunks;
}
inline int torus_all_to_all_rounds(int nranks) {
  const Torus torus = Torus::of(nranks);
  return (torus.columns - 1) * batches(torus.rows) + (torus.rows - 1) * batches(torus.columns);
}
inline int torus_all_to_all_joined_rounds(int nranks) {
  return Torus::of(nranks).columns > 1 ? 2 : 1;
}
inline int torus_all_to_all_chunks(int nranks) {
  const Torus torus = Torus::of(nranks);
  return torus.rows * (torus.columns - 1) + torus.columns * (torus.rows - 1);
}

inline int binomial_rounds(int nranks) {
  int most = 0;
  for (int place = 0; place < nranks; ++place) {
    most = std::max(most, std::popcount(static_cast<unsigned>(place)));
  }
  return most;
}

// Chunks sent by all ranks together. A block of a broadcast, reduction, gather or scatter has to
// reach every rank, or come from every rank, once.

constexpr int64_t zero_in_all(int /*nranks*/) { return 0; }
constexpr int64_t one_in_all(int /*nranks*/) { return 1; }
constexpr int64_t others_in_all(int nranks) { return nranks - 1; }
constexpr int64_t twice_others_in_all(int nranks) { return 2 * others_in_all(nranks); }
constexpr int64_t all_others(int nranks) { return nranks * others_in_all(nranks); }
constexpr int64_t all_twice_others(int nranks) { return 2 * all_others(nranks); }
constexpr int64_t bidirectional_in_all(int nranks) { return 2 * all_twice_others(nranks); }
inline int64_t doubling_in_all(int nranks) {
  const Butterfly fly = Butterfly::of(nranks);
  return int64_t{fly.p} * fly.steps + 2 * int64_t{fly.left_over};
}
inline int64_t quadrupling_in_all(int nranks) {
  const Butterfly fly = Butterfly::of(nranks);
  return int64_t{fly.p} * (fly.steps / 2 * 3 + fly.steps % 2) + 2 * int64_t{fly.left_over};
}
inline int64_t butterfly_in_all(int nranks) {
  const Butterfly fly = Butterfly::of(nranks);
  return 2 * int64_t{fly.p} * (fly.p - 1) + 2 * int64_t{fly.left_over} * fly.p;
}
inline int64_t bruck_all_to_all_in_all(int nranks) {
  return int64_t{nranks} * bruck_all_to_all_chunks(nranks);
}
inline int64_t torus_all_to_all_in_all(int nranks) {
  return int64_t{nranks} * torus_all_to_all_chunks(nranks);
}
inline int64_t binomial_hops(int nranks) {
  int64_t hops = 0;
  for (int place = 0; place < nranks; ++place) {
    hops += std::popcount(static_cast<unsigned>(place));
  }
  return hops;
}

inline Cost collnet_direct_cost(const RankPlacement& placement) {
  const bool is_alone = placement.ranks_per_node_max == 1;
  return {.rounds = is_alone ? 2 : 4,
          .chunks_moved = kCollnetDepth * (placement.heads + placement.ranks_per_node_max - 1),
          .chunks_in_all = int64_t{2} * kCollnetDepth * placement.heads * placement.nranks,
          .chunks_reduced = kCollnetDepth * (placement.ranks_per_node_max - 1),
          .chunks = kCollnetDepth * placement.heads};
}
inline Cost collnet_chain_cost(const RankPlacement& placement) {
  const bool is_alone = placement.ranks_per_node_max == 1;
  return {.rounds = 2 * placement.ranks_per_node_max,
          .chunks_moved = is_alone ? 1 : 2,
          .chunks_in_all = int64_t{2} * placement.nranks,
          .chunks_reduced = is_alone ? 0 : 1,
          .chunks = 1};
}

}  // namespace plexus::formulas
