// SPDX-License-Identifier: Apache-2.0
#include "tools/sim/lanes.hpp"

#include <algorithm>

namespace plexus {

uint64_t SimLaneState::bytes(const SimJob& job) const {
  const std::span<const Step> steps_moved = message();
  if (!job.exact_spans) {
    const uint64_t chunks =
        steps_moved.size() - 1 + static_cast<uint64_t>(steps_moved.front().chunks);
    const uint64_t all = chunks * chunk_bytes(*geometry, loop, job.element_bytes);
    const uint64_t whole = geometry->part_count * job.element_bytes;
    return geometry->blocked || chunks == 1 ? all : std::min(all, whole);
  }
  uint64_t all = 0;
  for (const Step& each : steps_moved) {
    all += step_bytes(*geometry, each, loop, job.element_bytes);
  }
  return all;
}

SimLanes::SimLanes(const SimNetwork& network) : network_(network) {
  size_t peers = 0;
  for (const SimRank& rank : network_.ranks) {
    for (const SimLane& lane : rank.lanes) {
      peers += lane.connections.size();
    }
  }
  peers_.reserve(peers);  // lanes point into it
  first_.push_back(0);
  for (const SimRank& rank : network_.ranks) {
    for (const SimLane& lane : rank.lanes) {
      const auto channel = static_cast<size_t>(lane.channel);
      SimLaneState& state = lanes_.emplace_back();
      const SimLane& alike = find_alike(lane);
      state.steps = alike.steps->steps.data();
      state.step_count = static_cast<uint32_t>(alike.steps->steps.size());
      state.first = alike.first.data();
      state.connections = peers_.data() + peers_.size();
      peers_.insert(peers_.end(), lane.connections.begin(), lane.connections.end());
      state.geometry = &network_.geometries[channel];
      state.channel_lane = first_.back() + rank.first_lanes[channel];
    }
    first_.push_back(static_cast<uint32_t>(lanes_.size()));
  }
}

const SimLane& SimLanes::find_alike(const SimLane& lane) {
  constexpr size_t kAlikeMax = 64;
  const auto found = std::find_if(alike_.begin(), alike_.end(), [&](const SimLane* other) {
    return other->steps->steps == lane.steps->steps && other->first == lane.first;
  });
  if (found != alike_.end()) {
    return **found;
  }
  if (alike_.size() < kAlikeMax) {
    alike_.push_back(&lane);
  }
  return lane;
}

}  // namespace plexus
