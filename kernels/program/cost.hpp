// SPDX-License-Identifier: Apache-2.0
// What a loop of an algorithm costs, counted in the programs of all ranks: messages, chunks, and
// how many of them go from one datacenter to another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/program/algorithms.hpp"
#include "kernels/program/lane_network.hpp"

namespace plexus {

struct LoopCost : Cost {
  LoopCost() = default;
  explicit LoopCost(const Cost& cost) : Cost(cost) {}
  int xdc_rounds = 0;  // messages between datacenters, on the chain with the most of them
  std::vector<int64_t>
      xdc_chunks;  // [datacenters * datacenters], by sending and by receiving datacenter

  /// Most chunks that leave a datacenter.
  [[nodiscard]] int64_t xdc_chunks_out() const;
};

/// What networks that reduce (peers from `nranks` on) move is not at a rank.
int count_chunks_moved(const LaneNetwork& network, int nranks);
int64_t count_chunks_in_all(const LaneNetwork& network);
/// The most pairs that a rank combines; a verb of several operands combines one less.
int count_chunks_reduced(std::span<const Program> programs);

/// Of the program that every rank of `input.ring` records (`input.rank` does not matter), which is
/// correct. O(steps of all ranks).
LoopCost count_cost(const Algorithm& algorithm, const RecordInput& input);

}  // namespace plexus
