// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/candidate.hpp"

#include <algorithm>
#include <numeric>

namespace plexus {
namespace {

ChannelOrder flat_order(int nranks) {
  ChannelOrder order;
  order.ring.resize(static_cast<size_t>(nranks));
  std::iota(order.ring.begin(), order.ring.end(), 0);
  order.nodes = {0};
  return order;
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
  return input.costs != nullptr ? input.costs->of(algorithm)
                                : LoopCosts(flat_order(input.nranks), true).of(algorithm);
}

}  // namespace plexus
