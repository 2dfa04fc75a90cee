// SPDX-License-Identifier: Apache-2.0
#include "tools/sim/simulate.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <numeric>
#include <random>

#include "kernels/layout/fifo.hpp"
#include "tools/sim/carrier.hpp"
#include "tools/sim/clock.hpp"

namespace plexus {
namespace {

struct LaneState {
  uint32_t loop = 0;
  uint32_t step = 0;
  bool is_busy = false;   // in a step, or waiting for the core with one that may begin
  bool has_sent = false;  // the step's messages
};

struct RankState {
  int call = 0;
  size_t lanes_left = 0;       // of this call
  std::deque<uint32_t> ready;  // lanes that wait for the core
  size_t core = 0;
  size_t place = 0;  // among the core's ranks
};

/// A core, and the ranks that take turns on it: one that finds nothing to do yields to the next,
/// whether that has something to do or not. So turns go around while nobody has.
struct CoreState {
  std::vector<uint32_t> ranks;
  size_t turn = 0;       // place of the rank that runs, or whose turn began at `since_us`
  double since_us = 0;   // of an idle core
  bool is_busy = false;  // a step runs
  uint64_t version = 0;  // how often one has begun to run
};

struct ConnectionState {
  uint64_t sent = 0;
  uint64_t arrived = 0;
  uint64_t taken = 0;
  uint64_t released = 0;
};

class Simulation {
 public:
  Simulation(const SimNetwork& network,
             const Fabric* fabric,
             const SimWatch& watch,
             const SimFaults* faults)
      : network_(network),
        job_(network.job),
        watch_(watch),
        faults_(faults),
        carrier_(network, fabric, watch, faults, &clock_),
        connections_(network.connections.size()),
        ranks_(network.ranks.size()) {
    for (const SimRank& rank : network.ranks) {
      lanes_.emplace_back(rank.lanes.size());
    }
    if (job_.cores > 0) {
      const int nodes = (network.nranks + job_.ranks_per_node - 1) / job_.ranks_per_node;
      cores_.resize(static_cast<size_t>(nodes) * static_cast<size_t>(job_.cores));
      place_on_cores();
    }
    result_.rank_us.resize(network.ranks.size());
  }

  Result<SimResult> run() {
    for (uint32_t rank = 0; rank < lanes_.size(); ++rank) {
      begin_call(rank, 0);
    }
    carrier_.settle(0);
    while (!clock_.empty()) {
      const double now_us = clock_.next_us();
      while (!clock_.empty() && clock_.next_us() == now_us) {
        take(clock_.take());
      }
      carrier_.settle(now_us);
    }
    result_.wide_bytes = carrier_.wide_bytes();
    result_.time_us = *std::max_element(result_.rank_us.begin(), result_.rank_us.end());
    find_waits();
    if (!result_.waits.empty()) {
      result_.time_us = std::numeric_limits<double>::infinity();
    }
    if (!result_.waits.empty() && faults_ == nullptr) {
      return fail(Code::kInternalError, "rank {} waits for rank {} for ever",
                  result_.waits.front().rank, result_.waits.front().peer);
    }
    return std::move(result_);
  }

 private:
  /// The ranks of a node go to its cores in turn, by number or shuffled.
  void place_on_cores() {
    std::vector<uint32_t> order(network_.ranks.size());
    std::iota(order.begin(), order.end(), 0U);
    const auto per_node = static_cast<size_t>(job_.ranks_per_node);
    std::mt19937 random(job_.shuffle);
    for (size_t first = 0; job_.shuffle > 0 && first < order.size(); first += per_node) {
      for (size_t last = std::min(order.size(), first + per_node) - 1; last > first; --last) {
        std::swap(order[last], order[first + random() % (last - first + 1)]);
      }
    }
    for (size_t place = 0; place < order.size(); ++place) {
      const int rank = network_.ranks[place].rank;
      RankState& state = ranks_[order[place]];
      state.core = static_cast<size_t>(rank / job_.ranks_per_node * job_.cores +
                                       rank % job_.ranks_per_node % job_.cores);
      state.place = cores_[state.core].ranks.size();
      cores_[state.core].ranks.push_back(order[place]);
    }
  }

  void find_waits() {
    for (uint32_t rank = 0; rank < lanes_.size(); ++rank) {
      for (uint32_t lane = 0; lane < lanes_[rank].size(); ++lane) {
        if (!has_ended(rank, lane) && is_after_done(rank, lane)) {
          find_wait(rank, lane);
        }
      }
    }
  }

  void find_wait(uint32_t rank, uint32_t lane) {
    const SimLane& one = lane_of(rank, lane);
    const Step& step = step_of(rank, lane);
    const uint32_t* const at = one.connections.data() + one.first[lanes_[rank][lane].step];
    for (int i = 0; i < step.receives + step.sends; ++i) {
      const SimConnection& connection = network_.connections[at[i]];
      const ConnectionState& state = connections_[at[i]];
      const bool receives = i < step.receives;
      if (receives ? state.arrived == state.taken : state.sent - state.released >= kSlots) {
        result_.waits.push_back(
            {.rank = network_.ranks[rank].rank,
             .peer = network_.ranks[receives ? connection.source : connection.target].rank,
             .receives = receives});
        return;
      }
    }
  }

  [[nodiscard]] const SimLane& lane_of(uint32_t rank, uint32_t lane) const {
    return network_.ranks[rank].lanes[lane];
  }
  [[nodiscard]] const Geometry& geometry_of(const SimLane& lane) const {
    return network_.geometries[static_cast<size_t>(lane.channel)];
  }
  [[nodiscard]] const Step& step_of(uint32_t rank, uint32_t lane) const {
    return lane_of(rank, lane).steps->steps[lanes_[rank][lane].step];
  }
  [[nodiscard]] bool has_ended(uint32_t rank, uint32_t lane) const {
    const SimLane& one = lane_of(rank, lane);
    return one.steps->steps.empty() || lanes_[rank][lane].loop >= geometry_of(one).loops;
  }
  /// Of the lane's next step.
  [[nodiscard]] uint64_t bytes_of(uint32_t rank, uint32_t lane) const {
    const Geometry& geometry = geometry_of(lane_of(rank, lane));
    const uint32_t loop = lanes_[rank][lane].loop;
    return job_.exact_spans ? step_bytes(geometry, step_of(rank, lane), loop, job_.element_bytes)
                            : chunk_bytes(geometry, loop, job_.element_bytes);
  }

  void take(const SimEvent& event) {
    ++result_.events;
    switch (event.kind) {
      case SimEvent::Kind::kDeparture:
      case SimEvent::Kind::kHead:
      case SimEvent::Kind::kFlowEnd:
        carrier_.take(event);
        break;
      case SimEvent::Kind::kArrival: {
        const SimConnection& connection = network_.connections[event.number];
        ++connections_[event.number].arrived;
        wake(connection.target, connection.recv_lane, event.time_us);
        break;
      }
      case SimEvent::Kind::kSlotFree: {
        const SimConnection& connection = network_.connections[event.number];
        ++connections_[event.number].released;
        wake(connection.source, connection.send_lane, event.time_us);
        break;
      }
      case SimEvent::Kind::kHandOver:
        send_messages(event.number, event.place, event.time_us);
        break;
      case SimEvent::Kind::kStepEnd:
        end_step(event.number, event.place, event.time_us);
        break;
      case SimEvent::Kind::kTurn:
        take_turn(event);
        break;
      case SimEvent::Kind::kCallEnd:
        end_call(event.number, event.time_us);
        break;
    }
  }

  void begin_call(uint32_t rank, double now_us) {
    for (uint32_t lane = 0; lane < lanes_[rank].size(); ++lane) {
      lanes_[rank][lane] = {};
      ranks_[rank].lanes_left += has_ended(rank, lane) ? 0 : 1;
    }
    start_lanes(rank, now_us);
  }

  /// All lanes of a rank have done the call.
  void end_lanes(uint32_t rank, double now_us) {
    clock_.add({.time_us = now_us + job_.call_us,
                .kind = SimEvent::Kind::kCallEnd,
                .place = 0,
                .number = rank});
  }

  void end_call(uint32_t rank, double now_us) {
    result_.rank_us[rank] = now_us;
    if (++ranks_[rank].call < job_.calls) {
      begin_call(rank, now_us);
    }
    leave_core(rank, now_us);
  }

  /// Something has come for a lane.
  void wake(uint32_t rank, uint32_t lane, double now_us) {
    if (job_.exact_spans) {
      start_lanes(rank, now_us);  // a step without bytes lets others go on
    } else {
      start_lane(rank, lane, now_us);
    }
  }

  void start_lanes(uint32_t rank, double now_us) {
    for (bool skipped = job_.exact_spans; skipped;) {
      skipped = false;
      for (uint32_t lane = 0; lane < lanes_[rank].size(); ++lane) {
        skipped = skip_empty(rank, lane, now_us) || skipped;
      }
    }
    for (uint32_t lane = 0; lane < lanes_[rank].size(); ++lane) {
      start_lane(rank, lane, now_us);
    }
  }

  /// Goes past a step that moves nothing. False: there is none now.
  bool skip_empty(uint32_t rank, uint32_t lane, double now_us) {
    if (lanes_[rank][lane].is_busy || has_ended(rank, lane) || !is_after_done(rank, lane) ||
        bytes_of(rank, lane) > 0) {
      return false;
    }
    next_step(rank, lane, now_us);
    return true;
  }

  /// Begins the lane's next step if it can begin, or queues it for the rank's core.
  void start_lane(uint32_t rank, uint32_t lane, double now_us) {
    if (lanes_[rank][lane].is_busy || has_ended(rank, lane) || !may_begin(rank, lane)) {
      return;
    }
    lanes_[rank][lane].is_busy = true;
    if (job_.cores == 0) {
      begin_step(rank, lane, now_us);
      return;
    }
    ranks_[rank].ready.push_back(lane);
    if (!core_of(rank).is_busy) {
      await_turn(rank, now_us);
    }
  }

  [[nodiscard]] CoreState& core_of(uint32_t rank) { return cores_[ranks_[rank].core]; }

  /// A rank with something to do runs when the turns on its idle core come to it.
  void await_turn(uint32_t rank, double now_us) {
    const CoreState& core = core_of(rank);
    const size_t count = core.ranks.size();
    const double turn_us = count > 1 ? job_.turn_us : 0;
    const double round_us = static_cast<double>(count) * turn_us;
    const size_t turns = (ranks_[rank].place + count - core.turn) % count;
    const double first_us = core.since_us + static_cast<double>(turns) * turn_us;
    const double rounds =
        round_us > 0 ? std::max(0.0, std::ceil((now_us - first_us) / round_us)) : 0;
    clock_.add({.time_us = std::max(now_us, first_us + rounds * round_us),
                .kind = SimEvent::Kind::kTurn,
                .place = static_cast<uint32_t>(ranks_[rank].place),
                .number = rank,
                .value = static_cast<double>(core.version)});
  }

  void take_turn(const SimEvent& event) {
    CoreState& core = core_of(event.number);
    if (static_cast<uint64_t>(event.value) != core.version) {
      return;  // another rank's turn came first
    }
    core.turn = event.place;
    core.is_busy = true;
    ++core.version;
    run_on_core(event.number, event.time_us);
  }

  void run_on_core(uint32_t rank, double now_us) {
    const uint32_t lane = ranks_[rank].ready.front();
    ranks_[rank].ready.pop_front();
    begin_step(rank, lane, now_us);
  }

  /// The rank's step, or call, has ended: its next step is next, else it yields.
  void leave_core(uint32_t rank, double now_us) {
    if (job_.cores == 0) {
      return;
    }
    CoreState& core = core_of(rank);
    if (!core.is_busy || core.ranks[core.turn] != rank) {
      return;  // its call ended with steps that moved nothing
    }
    if (!ranks_[rank].ready.empty()) {
      run_on_core(rank, now_us);
      return;
    }
    const size_t count = core.ranks.size();
    core.is_busy = false;
    core.turn = (core.turn + 1) % count;
    core.since_us = now_us + (count > 1 ? job_.turn_us : 0);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t next = core.ranks[(core.turn + i) % count];
      if (!ranks_[next].ready.empty()) {
        await_turn(next, now_us);
        return;
      }
    }
  }

  void begin_step(uint32_t rank, uint32_t lane, double begin_us) {
    LaneState& state = lanes_[rank][lane];
    const SimLane& one = lane_of(rank, lane);
    const Step& step = step_of(rank, lane);
    const double duration_us =
        duration_of(one, state, step, static_cast<double>(bytes_of(rank, lane))) +
        (faults_ == nullptr ? 0 : faults_->slow_us(network_.ranks[rank].rank));
    const double end_us = begin_us + duration_us;
    if (watch_.on_slice) {
      watch_.on_slice({.rank = rank,
                       .lane = lane,
                       .step = state.step,
                       .loop = state.loop,
                       .begin_us = begin_us,
                       .end_us = end_us});
    }
    state.has_sent = false;
    if (const double early_us = early_of(one, state, step); early_us > 0) {
      clock_.add({.time_us = std::max(begin_us, end_us - early_us),
                  .kind = SimEvent::Kind::kHandOver,
                  .place = lane,
                  .number = rank});
    }
    clock_.add(
        {.time_us = end_us, .kind = SimEvent::Kind::kStepEnd, .place = lane, .number = rank});
  }

  [[nodiscard]] bool is_after_done(uint32_t rank, uint32_t lane) const {
    const LaneState& state = lanes_[rank][lane];
    const After& after = step_of(rank, lane).after;
    if (after.lane < 0) {
      return true;
    }
    const uint32_t first =
        network_.ranks[rank].first_lanes[static_cast<size_t>(lane_of(rank, lane).channel)];
    const LaneState& other = lanes_[rank][first + static_cast<uint32_t>(after.lane)];
    return other.loop > state.loop ||
           (other.loop == state.loop && other.step > static_cast<uint32_t>(after.step));
  }

  [[nodiscard]] bool may_begin(uint32_t rank, uint32_t lane) const {
    if (!is_after_done(rank, lane)) {
      return false;
    }
    const SimLane& one = lane_of(rank, lane);
    const Step& step = step_of(rank, lane);
    const uint32_t* const at = one.connections.data() + one.first[lanes_[rank][lane].step];
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

  /// How long before its end a step hands its messages over.
  [[nodiscard]] double early_of(const SimLane& lane,
                                const LaneState& state,
                                const Step& step) const {
    return step.sends == 0 ? 0 : link_of(lane, state, step.receives).work.early_us;
  }
  /// Of the step's peer number `peer`.
  [[nodiscard]] const SimLink& link_of(const SimLane& lane,
                                       const LaneState& state,
                                       int peer) const {
    const uint32_t connection =
        lane.connections[lane.first[state.step] + static_cast<uint32_t>(peer)];
    return job_.link(network_.connections[connection].kind);
  }

  [[nodiscard]] double duration_of(const SimLane& lane,
                                   const LaneState& state,
                                   const Step& step,
                                   double bytes) const {
    const SimCosts& costs = job_.costs;
    double duration_us = work_of(lane, state, step, bytes);
    for (int i = 0; i < step.receives + step.sends; ++i) {
      duration_us += link_of(lane, state, i).message_us;
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

  /// What was measured of messages as those of the step (SimWork).
  [[nodiscard]] double work_of(const SimLane& lane,
                               const LaneState& state,
                               const Step& step,
                               double bytes) const {
    const auto node_bytes = static_cast<double>(job_.node_bytes);
    const bool combines = step.source != Buffer::kNone;
    const bool apart = step.target != Buffer::kNone && step.target != step.source;
    double work_us = 0;
    for (int i = 0; i < step.receives; ++i) {
      const SimWork& work = link_of(lane, state, i).work;
      const SimCurve& curve = !combines ? work.recv : apart ? work.combine_apart : work.combine;
      work_us += curve.of_message(bytes, node_bytes, work.slot_bytes);
    }
    for (int i = step.receives; i < step.receives + step.sends; ++i) {
      const SimWork& work = link_of(lane, state, i).work;
      // what arrives and has no target is made in the first slot that it leaves by
      const bool is_made_there =
          i == step.receives && step.receives > 0 && step.target == Buffer::kNone;
      work_us += is_made_there ? work.send.at(0)
                               : work.send.of_message(bytes, node_bytes, work.slot_bytes);
    }
    const SimWork& own = job_.costs.near.work;
    if (step.receives == 0 && step.source != Buffer::kNone && apart) {
      work_us += own.copy.of_message(bytes, node_bytes, own.slot_bytes);
    } else if (step.accumulates) {
      work_us += own.combine.of_message(bytes, node_bytes, own.slot_bytes);
    }
    return work_us;
  }

  void send_messages(uint32_t rank, uint32_t lane, double now_us) {
    LaneState& state = lanes_[rank][lane];
    const SimLane& one = lane_of(rank, lane);
    const Step& step = step_of(rank, lane);
    const uint32_t* const at = one.connections.data() + one.first[state.step];
    for (int i = step.receives; i < step.receives + step.sends; ++i) {
      ++connections_[at[i]].sent;
      ++result_.messages;
      carrier_.send(at[i], static_cast<double>(bytes_of(rank, lane)), now_us);
    }
    state.has_sent = true;
  }

  void end_step(uint32_t rank, uint32_t lane, double now_us) {
    const SimLane& one = lane_of(rank, lane);
    const Step& step = step_of(rank, lane);
    const uint32_t* const at = one.connections.data() + one.first[lanes_[rank][lane].step];
    for (int i = 0; i < step.receives; ++i) {
      ++connections_[at[i]].taken;
      if (network_.connections[at[i]].kind != SimLinkKind::kWide) {
        clock_.add({.time_us = now_us + carrier_.latency_us(at[i]),
                    .kind = SimEvent::Kind::kSlotFree,
                    .place = network_.connections[at[i]].source_place,
                    .number = at[i]});
      }
    }
    if (!lanes_[rank][lane].has_sent) {
      send_messages(rank, lane, now_us);
    }
    lanes_[rank][lane].is_busy = false;
    next_step(rank, lane, now_us);
    if (ranks_[rank].lanes_left > 0) {
      start_lanes(rank, now_us);
      leave_core(rank, now_us);
    }
  }

  void next_step(uint32_t rank, uint32_t lane, double now_us) {
    LaneState& state = lanes_[rank][lane];
    if (++state.step < lane_of(rank, lane).steps->steps.size()) {
      return;
    }
    state.step = 0;
    ++state.loop;
    if (has_ended(rank, lane) && --ranks_[rank].lanes_left == 0) {
      end_lanes(rank, now_us);
    }
  }

  const SimNetwork& network_;
  const SimJob& job_;
  const SimWatch& watch_;
  const SimFaults* faults_;
  SimClock clock_;
  SimCarrier carrier_;
  std::vector<ConnectionState> connections_;
  std::vector<std::vector<LaneState>> lanes_;  // [ranks]
  std::vector<RankState> ranks_;
  std::vector<CoreState> cores_;  // [nodes][cores of each]
  SimResult result_;
};

}  // namespace

Result<SimResult> simulate(const SimNetwork& network,
                           const Fabric* fabric,
                           const SimWatch& watch,
                           const SimFaults* faults) {
  if (faults != nullptr && network.ranks.size() != static_cast<size_t>(network.nranks)) {
    return fail(Code::kInvalidArgument, "with faults ranks are not alike: simulate all of them");
  }
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
  if (network.job.cores > 0 && network.job.cores < network.job.ranks_per_node &&
      network.ranks.size() != static_cast<size_t>(network.nranks)) {
    return fail(Code::kInvalidArgument,
                "ranks that share cores are not alike: simulate all of them");
  }
  return Simulation(network, fabric, watch, faults).run();
}

}  // namespace plexus
