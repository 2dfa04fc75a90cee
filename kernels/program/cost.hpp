// SPDX-License-Identifier: Apache-2.0
// The cost of one loop of an algorithm, counted in the programs of all ranks: messages, chunks, and
// the number of them that go from one host to another, and from one datacenter to another.
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
  int messages_moved = 0;  // as chunks_moved, where several travel in one message; 0: none does
  // Between hosts of one datacenter; 0: not counted.
  int net_rounds = 0;             // messages, on the chain with most of them
  int net_chunks = 0;             // largest number that one rank sends or receives
  int64_t net_chunks_in_all = 0;  // that all ranks send
  int xdc_rounds = 0;             // messages between datacenters, on the chain with most of them
  std::vector<int64_t>
      xdc_chunks;  // [datacenters * datacenters], by sending and receiving datacenter

  /// The largest number of chunks that leave one datacenter.
  [[nodiscard]] int64_t xdc_chunks_out() const;
};

/// Without what networks that reduce (peers from `nranks` on) send and receive.
int count_chunks_moved(const LaneNetwork& network, int nranks);
int64_t count_chunks_in_all(const LaneNetwork& network);
/// The largest number of pairs that one rank combines; n operands of a verb are n - 1 pairs.
int count_chunks_reduced(std::span<const Program> programs);

/// Cost of the program that every rank of `input.ring` records (`input.rank` is ignored). Requires
/// a correct program. O(steps of all ranks).
LoopCost count_cost(const Algorithm& algorithm, const RecordInput& input);

}  // namespace plexus
