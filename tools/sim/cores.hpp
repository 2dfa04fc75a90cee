// SPDX-License-Identifier: Apache-2.0
// Ranks that take turns on the cores of their nodes. A rank that finds nothing to do yields to the
// next, whether that has something to do or not; so turns go around while nobody has.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <vector>

#include "tools/sim/clock.hpp"
#include "tools/sim/network.hpp"

namespace plexus {

/// Of a job with SimJob::cores; of another one it is empty and leave() does nothing.
class SimCores {
 public:
  /// `clock` gets the turns (kTurn) of ranks that have something to do.
  SimCores(const SimNetwork& network, SimClock* clock);

  [[nodiscard]] bool share(uint32_t rank, uint32_t other) const {
    return seats_[rank].core == seats_[other].core;
  }
  /// A lane of the rank may begin a step, when the core is the rank's.
  void queue(uint32_t rank, uint32_t lane, double now_us);
  /// The lane that begins its step now; nullopt: another rank's turn came first.
  [[nodiscard]] std::optional<uint32_t> take_turn(const SimEvent& turn);
  /// The rank's step, or call, has ended: the lane that begins its step now, else the rank yields.
  [[nodiscard]] std::optional<uint32_t> leave(uint32_t rank, double now_us);

 private:
  /// A rank on its core.
  struct Seat {
    std::deque<uint32_t> ready;  // lanes that wait for the core
    size_t core = 0;
    size_t place = 0;  // among the core's ranks
  };
  struct Core {
    std::vector<uint32_t> ranks;
    size_t turn = 0;       // place of the rank that runs, or whose turn began at `since_us`
    double since_us = 0;   // of an idle core
    bool is_busy = false;  // a step runs
    uint64_t version = 0;  // how often one has begun to run
  };

  void place_ranks(const SimNetwork& network);
  void begin_turns();
  void await_turn(uint32_t rank, double now_us);
  [[nodiscard]] uint32_t next_lane(uint32_t rank);
  /// From 0 to 1.
  [[nodiscard]] double draw() {
    return static_cast<double>(random_()) / static_cast<double>(std::mt19937::max());
  }

  const SimJob& job_;
  SimClock* clock_;
  std::vector<Seat> seats_;  // [ranks]
  std::vector<Core> cores_;  // [nodes][cores of each]
  std::mt19937 random_;
};

}  // namespace plexus
