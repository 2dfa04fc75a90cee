// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/candidate.hpp"

#include <algorithm>
#include <numeric>

#include "core/tuning/partition.hpp"

namespace plexus {
namespace {

ChannelOrder flat_order(int nranks) {
  ChannelOrder order;
  order.ring.resize(static_cast<size_t>(nranks));
  std::iota(order.ring.begin(), order.ring.end(), 0);
  order.nodes = {0};
  return order;
}

bool joins(const Choice& choice, const ChoiceInput& input) {
  const uint64_t count = input.size_bytes / input.element_bytes;
  const uint64_t blocks = is_blocked(input.collective) ? static_cast<uint64_t>(input.nranks) : 1;
  return message_form_of({.algorithm = choice.algorithm,
                          .protocol = choice.protocol,
                          .in_memory = input.shares_memory && input.nodes == 1,
                          .on_device = input.blocks > 0},
                         {.collective = input.collective,
                          .count = count / blocks,
                          .element_bytes = input.element_bytes,
                          .nranks = input.nranks,
                          .channels = choice.channels,
                          .slot_bytes = choice.chunk_bytes})
      .joins;
}

}  // namespace

int channels_max_of(const Algorithm& algorithm, const ChoiceInput& input) {
  return input.blocks == 0
             ? input.channels_max
             : std::clamp(input.blocks / algorithm.lanes, 1, std::max(input.channels_max, 1));
}

LoopCost cost_of(const Choice& choice, const ChoiceInput& input) {
  const Algorithm& algorithm = *choice.algorithm;
  if (algorithm.recorded != nullptr &&
      (input.costs == nullptr || input.costs->datacenters() == 1)) {
    return LoopCost(algorithm.recorded->cost);
  }
  if (algorithm.network_cost != nullptr) {
    return LoopCost(cost_of(
        algorithm, {.nranks = input.nranks,
                    .nodes = input.nodes,
                    .ranks_per_node_max = input.ranks_per_node_max,
                    .heads = input.collnet == nullptr ? 1 : std::max(input.collnet->heads, 1)}));
  }
  LoopCost cost = input.costs != nullptr ? input.costs->of(algorithm)
                                         : LoopCosts(flat_order(input.nranks), true).of(algorithm);
  if (algorithm.recorded == nullptr && joins(choice, input)) {
    cost.rounds = algorithm.joined.rounds(input.nranks);
    cost.messages_moved = cost.rounds;  // a rank sends one in each
    cost.net_rounds = std::min(cost.net_rounds, cost.rounds);
  }
  return cost;
}

}  // namespace plexus
