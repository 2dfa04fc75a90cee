// SPDX-License-Identifier: Apache-2.0
// The events of a simulation in the order of time. Events of one time are ordered by what they are
// and by their place in their rank, never by which rank it is: ranks of one class see the same
// order (network.hpp).
#pragma once

#include <cstdint>
#include <queue>
#include <tuple>
#include <vector>

namespace plexus {

struct SimEvent {
  enum class Kind : uint8_t {
    kDeparture,
    kHead,
    kFlowEnd,
    kArrival,
    kSlotFree,
    kHandOver,
    kTurn,
    kStepEnd,
    kCallEnd
  };
  double time_us = 0;
  Kind kind = Kind::kHead;
  uint32_t place = 0;   // in its rank: a connection's, or the lane
  uint32_t number = 0;  // connection, or rank
  double value = 0;     // kDeparture: bytes; kHead: duration; kFlowEnd, kTurn: version
};

class SimClock {
 public:
  void add(const SimEvent& event) { queue_.push(event); }
  [[nodiscard]] bool empty() const { return queue_.empty(); }
  [[nodiscard]] double next_us() const { return queue_.top().time_us; }
  SimEvent take() {
    const SimEvent event = queue_.top();
    queue_.pop();
    return event;
  }

 private:
  struct Later {
    bool operator()(const SimEvent& a, const SimEvent& b) const {
      return std::tie(a.time_us, a.kind, a.place, a.number) >
             std::tie(b.time_us, b.kind, b.place, b.number);
    }
  };
  std::priority_queue<SimEvent, std::vector<SimEvent>, Later> queue_;
};

}  // namespace plexus
