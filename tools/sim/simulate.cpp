// SPDX-License-Identifier: Apache-2.0
#include "tools/sim/simulate.hpp"

#include <algorithm>

#include "kernels/layout/fifo.hpp"
#include "tools/sim/carrier.hpp"
#include "tools/sim/clock.hpp"

namespace plexus {
namespace {

struct LaneState {
  uint32_t loop = 0;
  uint32_t step = 0;
  bool is_busy = false;
};

struct ConnectionState {
  uint64_t sent = 0;
  uint64_t arrived = 0;
  uint64_t taken = 0;
  uint64_t released = 0;
};

class Simulation {
 public:
  Simulation(const SimNetwork& network, const Fabric* fabric, const SimWatch& watch)
      : network_(network),
        watch_(watch),
        carrier_(network, fabric, watch, &clock_),
        connections_(network.connections.size()) {
    for (const SimRank& rank : network.ranks) {
      lanes_.emplace_back(rank.lanes.size());
    }
    result_.rank_us.resize(network.ranks.size());
  }

  Result<SimResult> run() {
    for (uint32_t rank = 0; rank < lanes_.size(); ++rank) {
      start_lanes(rank, 0);
    }
    carrier_.settle(0);
    while (!clock_.empty()) {
      const double now_us = clock_.next_us();
      while (!clock_.empty() && clock_.next_us() == now_us) {
        take(clock_.take());
      }
      carrier_.settle(now_us);
    }
    for (uint32_t rank = 0; rank < lanes_.size(); ++rank) {
      for (uint32_t lane = 0; lane < lanes_[rank].size(); ++lane) {
        if (!has_ended(rank, lane)) {
          return fail(Code::kInternalError, "rank {}, lane {}: step {} of loop {} never begins",
                      network_.ranks[rank].rank, lane, lanes_[rank][lane].step,
                      lanes_[rank][lane].loop);
        }
      }
    }
    result_.time_us = *std::max_element(result_.rank_us.begin(), result_.rank_us.end());
    return std::move(result_);
  }

 private:
  [[nodiscard]] const SimLane& lane_of(uint32_t rank, uint32_t lane) const {
    return network_.ranks[rank].lanes[lane];
  }
  [[nodiscard]] const Geometry& geometry_of(const SimLane& lane) const {
    return network_.geometries[static_cast<size_t>(lane.channel)];
  }
  [[nodiscard]] bool has_ended(uint32_t rank, uint32_t lane) const {
    const SimLane& one = lane_of(rank, lane);
    return one.steps->steps.empty() || lanes_[rank][lane].loop >= geometry_of(one).loops;
  }

  void take(const SimEvent& event) {
    ++result_.events;
    switch (event.kind) {
      case SimEvent::Kind::kHead:
      case SimEvent::Kind::kFlowEnd:
        carrier_.take(event);
        break;
      case SimEvent::Kind::kArrival: {
        const SimConnection& connection = network_.connections[event.number];
        ++connections_[event.number].arrived;
        start_lane(connection.target, connection.recv_lane, event.time_us);
        break;
      }
      case SimEvent::Kind::kSlotFree: {
        const SimConnection& connection = network_.connections[event.number];
        ++connections_[event.number].released;
        start_lane(connection.source, connection.send_lane, event.time_us);
        break;
      }
      case SimEvent::Kind::kStepEnd:
        end_step(event.number, event.place, event.time_us);
        break;
    }
  }

  void start_lanes(uint32_t rank, double now_us) {
    for (uint32_t lane = 0; lane < lanes_[rank].size(); ++lane) {
      start_lane(rank, lane, now_us);
    }
  }

  /// Begins the lane's next step if it can begin.
  void start_lane(uint32_t rank, uint32_t lane, double now_us) {
    LaneState& state = lanes_[rank][lane];
    if (state.is_busy || has_ended(rank, lane) || !may_begin(rank, lane)) {
      return;
    }
    const SimLane& one = lane_of(rank, lane);
    const Step& step = one.steps->steps[state.step];
    const auto bytes =
        static_cast<double>(chunk_bytes(geometry_of(one), state.loop, network_.job.element_bytes));
    state.is_busy = true;
    const double end_us = now_us + duration_of(one, state, step, bytes);
    if (watch_.on_slice) {
      watch_.on_slice({.rank = rank,
                       .lane = lane,
                       .step = state.step,
                       .loop = state.loop,
                       .begin_us = now_us,
                       .end_us = end_us});
    }
    clock_.add(
        {.time_us = end_us, .kind = SimEvent::Kind::kStepEnd, .place = lane, .number = rank});
  }

  [[nodiscard]] bool may_begin(uint32_t rank, uint32_t lane) const {
    const LaneState& state = lanes_[rank][lane];
    const SimLane& one = lane_of(rank, lane);
    const Step& step = one.steps->steps[state.step];
    const uint32_t first = network_.ranks[rank].first_lanes[static_cast<size_t>(one.channel)];
    if (step.after.lane >= 0) {
      const LaneState& other = lanes_[rank][first + static_cast<uint32_t>(step.after.lane)];
      const bool is_done =
          other.loop > state.loop ||
          (other.loop == state.loop && other.step > static_cast<uint32_t>(step.after.step));
      if (!is_done) {
        return false;
      }
    }
    const uint32_t* const at = one.connections.data() + one.first[state.step];
    for (int i = 0; i < step.receives; ++i) {
      const ConnectionState& connection = connections_[at[i]];
      if (connection.arrived == connection.taken) {
        return false;
      }
    }
    for (int i = step.receives; i < step.receives + step.sends; ++i) {
      const ConnectionState& connection = connections_[at[i]];
      if (connection.sent - connection.released >= kSlots) {
        return false;
      }
    }
    return true;
  }

  [[nodiscard]] double duration_of(const SimLane& lane,
                                   const LaneState& state,
                                   const Step& step,
                                   double bytes) const {
    const SimCosts& costs = network_.job.costs;
    const uint32_t* const at = lane.connections.data() + lane.first[state.step];
    double duration_us = 0;
    for (int i = 0; i < step.receives + step.sends; ++i) {
      duration_us += network_.job.link(network_.connections[at[i]].kind).message_us;
    }
    const int operands =
        step.receives + (step.source != Buffer::kNone ? 1 : 0) + (step.accumulates ? 1 : 0);
    if (operands > 1) {
      duration_us += (operands - 1) * bytes * costs.reduce_us_per_byte;
    } else if (step.receives == 0 && step.target != Buffer::kNone) {
      duration_us += bytes * costs.copy_us_per_byte;
    }
    return duration_us;
  }

  void end_step(uint32_t rank, uint32_t lane, double now_us) {
    LaneState& state = lanes_[rank][lane];
    const SimLane& one = lane_of(rank, lane);
    const Step& step = one.steps->steps[state.step];
    const auto bytes =
        static_cast<double>(chunk_bytes(geometry_of(one), state.loop, network_.job.element_bytes));
    const uint32_t* const at = one.connections.data() + one.first[state.step];
    for (int i = 0; i < step.receives; ++i) {
      ++connections_[at[i]].taken;
      if (network_.connections[at[i]].kind != SimLinkKind::kWide) {
        clock_.add({.time_us = now_us + carrier_.latency_us(at[i]),
                    .kind = SimEvent::Kind::kSlotFree,
                    .place = network_.connections[at[i]].source_place,
                    .number = at[i]});
      }
    }
    for (int i = step.receives; i < step.receives + step.sends; ++i) {
      ++connections_[at[i]].sent;
      ++result_.messages;
      carrier_.send(at[i], bytes, now_us);
    }
    state.is_busy = false;
    if (++state.step == one.steps->steps.size()) {
      state.step = 0;
      ++state.loop;
    }
    result_.rank_us[rank] = now_us;
    start_lanes(rank, now_us);
  }

  const SimNetwork& network_;
  const SimWatch& watch_;
  SimClock clock_;
  SimCarrier carrier_;
  std::vector<ConnectionState> connections_;
  std::vector<std::vector<LaneState>> lanes_;  // [ranks]
  SimResult result_;
};

}  // namespace

Result<SimResult> simulate(const SimNetwork& network, const Fabric* fabric, const SimWatch& watch) {
  if (fabric != nullptr && network.ranks.size() != static_cast<size_t>(network.nranks)) {
    return fail(Code::kInvalidArgument,
                "ranks that share the links of a fabric are not alike: simulate all of them");
  }
  if (fabric != nullptr &&
      (network.nranks + network.job.ranks_per_node - 1) / network.job.ranks_per_node >
          fabric->nodes()) {
    return fail(Code::kInvalidArgument,
                "{} ranks, {} on a node, need more nodes than the {} of the fabric", network.nranks,
                network.job.ranks_per_node, fabric->nodes());
  }
  return Simulation(network, fabric, watch).run();
}

}  // namespace plexus
