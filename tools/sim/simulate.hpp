// SPDX-License-Identifier: Apache-2.0
// Runs the programs of a network on a virtual clock: a step begins when its lane is free, what it
// waits for is done, its messages have arrived and its peers have free slots. Deterministic: equal
// inputs give equal bits.
#pragma once

#include <cstdint>
#include <functional>

#include "tools/fabric/fabric.hpp"
#include "tools/sim/network.hpp"

namespace plexus {

/// What a lane did. `rank`: a place in SimNetwork::ranks.
struct SimSlice {
  uint32_t rank;
  uint32_t lane;
  uint32_t step;
  uint32_t loop;
  double begin_us;
  double end_us;
};

/// GB/s on a link of the fabric from now on.
struct SimRate {
  int link;
  double at_us;
  double gb_per_s;
};

struct SimWatch {
  std::function<void(const SimSlice& slice)> on_slice;
  std::function<void(const SimRate& rate)> on_rate;
};

struct SimResult {
  double time_us = 0;     // of the last rank
  uint64_t messages = 0;  // of all ranks in the network
  uint64_t events = 0;
  std::vector<double> rank_us;  // [SimNetwork::ranks] when each has done its part
};

/// Without a fabric, a rank's messages to and from its node, and those to and from others, go
/// through one port each, one message after the other; nothing else is shared. With one, messages
/// between nodes share its links fairly (max-min), and the network must have all ranks.
Result<SimResult> simulate(const SimNetwork& network,
                           const Fabric* fabric = nullptr,
                           const SimWatch& watch = {});

}  // namespace plexus
