// SPDX-License-Identifier: Apache-2.0
// The lanes of all ranks of a simulation, and how far each is in its steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/sim/network.hpp"

namespace plexus {

/// A lane and where it is, together: it is what nearly every event looks at.
struct alignas(64) SimLaneState {
  const Step* steps = nullptr;
  const uint32_t* connections = nullptr;  // as SimLane's
  const uint32_t* first = nullptr;
  const Geometry* geometry = nullptr;
  uint32_t step_count = 0;
  uint32_t channel_lane = 0;  // index of the first lane of its rank and channel
  uint32_t loop = 0;
  uint32_t step = 0;
  bool is_busy = false;   // in a step, or waiting for the core with one that may begin
  bool has_sent = false;  // the step's messages

  [[nodiscard]] bool has_ended() const { return step_count == 0 || loop >= geometry->loops; }
  /// The step that is next, or under way.
  [[nodiscard]] const Step& current() const { return steps[step]; }
  /// Its connections, those to receive from first.
  [[nodiscard]] const uint32_t* peers() const { return connections + first[step]; }
  /// The steps of the message that it begins.
  [[nodiscard]] std::span<const Step> message() const {
    return {&current(), steps_of_message(&current())};
  }
  /// Of the message, or of what the step moves without one.
  [[nodiscard]] uint64_t bytes(const SimJob& job) const;
};

class SimLanes {
 public:
  /// `network`: borrowed.
  explicit SimLanes(const SimNetwork& network);

  [[nodiscard]] uint32_t count(uint32_t rank) const { return first_[rank + 1] - first_[rank]; }
  [[nodiscard]] SimLaneState& at(uint32_t rank, uint32_t lane) {
    return lanes_[first_[rank] + lane];
  }
  /// Whether the step that the lane's next one comes after is done.
  [[nodiscard]] bool is_after_done(const SimLaneState& lane) const {
    const After& after = lane.current().after;
    if (after.lane < 0) {
      return true;
    }
    const SimLaneState& other = lanes_[lane.channel_lane + static_cast<uint32_t>(after.lane)];
    return other.loop > lane.loop ||
           (other.loop == lane.loop && other.step > static_cast<uint32_t>(after.step));
  }
  [[nodiscard]] size_t channel_of(const SimLaneState& lane) const {
    return static_cast<size_t>(lane.geometry - network_.geometries.data());
  }
  /// Calls `use` with the number and the state of each lane of a rank.
  template <class Use>
  void for_rank(uint32_t rank, const Use& use) {
    for (uint32_t lane = 0; lane < count(rank); ++lane) {
      use(lane, at(rank, lane));
    }
  }
  /// Calls `use` with the rank and the state of each lane that has steps.
  template <class Use>
  void for_all(const Use& use) {
    for (uint32_t rank = 0; rank + 1 < first_.size(); ++rank) {
      for_rank(rank, [&](uint32_t, SimLaneState& lane) {
        if (lane.step_count > 0) {
          use(rank, lane);
        }
      });
    }
  }

 private:
  /// A lane with the same steps: those that many ranks share stay in the caches.
  const SimLane& find_alike(const SimLane& lane);

  const SimNetwork& network_;
  std::vector<SimLaneState> lanes_;  // of all ranks
  std::vector<uint32_t> first_;      // [ranks + 1] index of its first lane
  std::vector<uint32_t> peers_;      // the connections of their steps
  std::vector<const SimLane*> alike_;
};

}  // namespace plexus
