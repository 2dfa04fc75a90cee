// SPDX-License-Identifier: Apache-2.0
// What the next step of a lane costs its rank's processor, and how many of its messages may be
// under way. `peer`: number of one of the step's connections, those to receive from first.
#pragma once

#include <cstdint>

#include "tools/sim/cores.hpp"
#include "tools/sim/lanes.hpp"

namespace plexus {

class StepCosts {
 public:
  /// Both are borrowed.
  StepCosts(const SimNetwork& network, const SimCores& cores);

  [[nodiscard]] double duration_us(const SimLaneState& lane) const;
  /// How long before its end the step hands its messages over.
  [[nodiscard]] double early_us(const SimLaneState& lane) const;
  /// Messages as the one to the peer whose slots are not free.
  [[nodiscard]] uint64_t most_under_way(const SimLaneState& lane, int peer) const;

 private:
  /// What was measured of messages as those of the step (SimWork).
  [[nodiscard]] double work_us(const SimLaneState& lane, double bytes) const;
  /// Of the work that the message of a peer is between cores.
  [[nodiscard]] double one_core_part(const SimLaneState& lane, int peer, double bytes) const;
  [[nodiscard]] const SimLink& link(const SimLaneState& lane, int peer) const;

  const SimNetwork& network_;
  const SimJob& job_;
  const SimCores& cores_;
  bool shares_cores_;
};

}  // namespace plexus
