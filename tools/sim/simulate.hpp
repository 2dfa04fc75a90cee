// SPDX-License-Identifier: Apache-2.0
// Runs the programs of a network on a virtual clock: a step begins when its lane is free, what it
// waits for is done, its messages have arrived and its peers have free slots. Deterministic: equal
// inputs give equal bits.
#pragma once

#include <cstdint>
#include <functional>

#include "tools/fabric/fabric.hpp"
#include "tools/sim/faults.hpp"
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

/// What a lane waits for that will never come.
struct SimWait {
  int rank = 0;
  int peer = 0;
  bool receives = false;  // a message of the peer; else that the peer takes one
};

struct SimResult {
  double time_us = 0;     // of the last rank; infinite if one never ends
  uint64_t messages = 0;  // of all ranks in the network
  uint64_t events = 0;
  uint64_t events_skipped = 0;     // of these, in periods that repeat (steady.hpp)
  std::vector<double> rank_us;     // [SimNetwork::ranks] when each has done its part
  std::vector<double> wide_bytes;  // likewise: sent to other datacenters
  std::vector<SimWait> waits;      // of lanes that never end, since a link is cut
};

/// Without a fabric, a rank's messages to and from its node, and those to and from others, go
/// through one port each, one message after the other; nothing else is shared. With one, messages
/// between nodes share its links fairly (max-min), and the network must have all ranks; also with
/// `faults`.
Result<SimResult> simulate(const SimNetwork& network,
                           const Fabric* fabric = nullptr,
                           const SimWatch& watch = {},
                           const SimFaults* faults = nullptr);

}  // namespace plexus
