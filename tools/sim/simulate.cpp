// SPDX-License-Identifier: Apache-2.0
#include "tools/sim/simulate.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "tools/sim/carrier.hpp"
#include "tools/sim/clock.hpp"
#include "tools/sim/cores.hpp"
#include "tools/sim/lanes.hpp"
#include "tools/sim/step_costs.hpp"

namespace plexus {
namespace {

struct RankState {
  uint32_t lanes_left = 0;  // of this call
  int call = 0;
};

/// Messages of a connection.
struct ConnectionState {
  uint32_t unreleased = 0;  // whose slots are not free
  uint32_t arrived = 0;     // not taken yet
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
        lanes_(network),
        cores_(network, &clock_),
        costs_(network, cores_),
        connections_(network.connections.size()),
        ranks_(network.ranks.size()),
        may_skip_(fabric == nullptr && faults == nullptr && !watch.on_slice &&
                  network.job.cores == 0 && !network.job.exact_spans) {
    result_.rank_us.resize(network.ranks.size());
  }

  Result<SimResult> run() {
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      begin_call(rank, 0);
    }
    carrier_.settle(0);
    choose_pace();
    while (clock_.advance()) {
      const double now_us = clock_.now_us();
      while (clock_.has_now()) {
        take(clock_.take());
      }
      carrier_.settle(now_us);
      if (pace_ != nullptr && pace_->loop != pace_loop_) {
        look_for_period();
      }
    }
    for (const uint64_t payload_bytes : carrier_.wide_bytes()) {
      result_.wide_bytes.push_back(static_cast<double>(payload_bytes) * wire_factor(job_.protocol));
    }
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
  void find_waits() {
    lanes_.for_all([this](uint32_t rank, const SimLaneState& lane) {
      if (!lane.has_ended() && lanes_.is_after_done(lane)) {
        find_wait(rank, lane);
      }
    });
  }

  void find_wait(uint32_t rank, const SimLaneState& lane) {
    const Step& step = lane.current();
    const uint32_t* const at = lane.peers();
    for (int i = 0; i < step.receives + step.sends; ++i) {
      const SimConnection& connection = network_.connections[at[i]];
      const ConnectionState& state = connections_[at[i]];
      const bool receives = i < step.receives;
      if (receives ? state.arrived == 0 : state.unreleased >= costs_.most_under_way(lane, i)) {
        result_.waits.push_back(
            {.rank = network_.ranks[rank].rank,
             .peer = network_.ranks[receives ? connection.source : connection.target].rank,
             .receives = receives});
        return;
      }
    }
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
        --connections_[event.number].unreleased;
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
        run_on_core(event.number, cores_.take_turn(event), event.time_us);
        break;
      case SimEvent::Kind::kCallEnd:
        end_call(event.number, event.time_us);
        break;
    }
  }

  void begin_call(uint32_t rank, double now_us) {
    lanes_.for_rank(rank, [&](uint32_t, SimLaneState& lane) {
      lane.loop = lane.step = 0;
      ranks_[rank].lanes_left += lane.has_ended() ? 0 : 1;
    });
    start_lanes(rank, now_us);
  }

  /// All lanes of a rank have done the call.
  void end_lanes(uint32_t rank, double now_us) {
    clock_.add({.time_us = now_us + on_tick(job_.call_us),
                .kind = SimEvent::Kind::kCallEnd,
                .place = 0,
                .number = rank});
  }

  void end_call(uint32_t rank, double now_us) {
    result_.rank_us[rank] = now_us;
    if (++ranks_[rank].call < job_.calls) {
      begin_call(rank, now_us);
    }
    run_on_core(rank, cores_.leave(rank, now_us), now_us);
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
      lanes_.for_rank(rank, [&](uint32_t, SimLaneState& lane) {
        skipped = skip_empty(rank, lane, now_us) || skipped;
      });
    }
    for (uint32_t lane = 0; lane < lanes_.count(rank); ++lane) {
      start_lane(rank, lane, now_us);
    }
  }

  /// Goes past a step that moves nothing. False: there is none now.
  bool skip_empty(uint32_t rank, SimLaneState& lane, double now_us) {
    if (lane.is_busy || lane.has_ended() || !lanes_.is_after_done(lane) || lane.bytes(job_) > 0) {
      return false;
    }
    next_step(rank, lane, now_us);
    return true;
  }

  /// Begins the lane's next step if it can begin, or queues it for the rank's core.
  void start_lane(uint32_t rank, uint32_t lane, double now_us) {
    SimLaneState& state = lanes_.at(rank, lane);
    if (state.is_busy || state.has_ended() || !may_begin(state)) {
      return;
    }
    state.is_busy = true;
    if (job_.cores == 0) {
      begin_step(rank, lane, now_us);
      return;
    }
    cores_.queue(rank, lane, now_us);
  }

  /// The core is the rank's: it does the step of `lane`, if there is one.
  void run_on_core(uint32_t rank, std::optional<uint32_t> lane, double now_us) {
    if (lane.has_value()) {
      begin_step(rank, *lane, now_us);
    }
  }

  void begin_step(uint32_t rank, uint32_t lane, double begin_us) {
    SimLaneState& state = lanes_.at(rank, lane);
    const double duration_us =
        costs_.duration_us(state) +
        (faults_ == nullptr ? 0 : faults_->slow_us(network_.ranks[rank].rank));
    const double end_us = begin_us + on_tick(duration_us);
    if (watch_.on_slice) {
      watch_.on_slice({.rank = rank,
                       .lane = lane,
                       .step = state.step,
                       .loop = state.loop,
                       .begin_us = begin_us,
                       .end_us = end_us});
    }
    state.has_sent = false;
    if (const double early_us = costs_.early_us(state); early_us > 0) {
      clock_.add({.time_us = std::max(begin_us, end_us - on_tick(early_us)),
                  .kind = SimEvent::Kind::kHandOver,
                  .place = lane,
                  .number = rank});
    }
    clock_.add(
        {.time_us = end_us, .kind = SimEvent::Kind::kStepEnd, .place = lane, .number = rank});
  }

  [[nodiscard]] bool may_begin(const SimLaneState& lane) const {
    if (!lanes_.is_after_done(lane)) {
      return false;
    }
    const Step& step = lane.current();
    const uint32_t* const at = lane.peers();
    for (int i = 0; i < step.receives; ++i) {
      if (connections_[at[i]].arrived == 0) {
        return false;
      }
    }
    for (int i = step.receives; i < step.receives + step.sends; ++i) {
      if (connections_[at[i]].unreleased >= costs_.most_under_way(lane, i)) {
        return false;
      }
    }
    return true;
  }

  void send_messages(uint32_t rank, uint32_t lane, double now_us) {
    SimLaneState& state = lanes_.at(rank, lane);
    const Step& step = state.current();
    const uint32_t* const at = state.peers();
    for (int i = step.receives; i < step.receives + step.sends; ++i) {
      ++connections_[at[i]].unreleased;
      ++result_.messages;
      carrier_.send(at[i], static_cast<double>(state.bytes(job_)), now_us);
    }
    state.has_sent = true;
  }

  void end_step(uint32_t rank, uint32_t lane, double now_us) {
    SimLaneState& state = lanes_.at(rank, lane);
    const Step& step = state.current();
    const uint32_t* const at = state.peers();
    for (int i = 0; i < step.receives; ++i) {
      --connections_[at[i]].arrived;
      if (network_.connections[at[i]].kind != SimLinkKind::kWide) {
        clock_.add({.time_us = now_us + carrier_.latency_us(at[i]),
                    .kind = SimEvent::Kind::kSlotFree,
                    .place = network_.connections[at[i]].source_place,
                    .number = at[i]});
      }
    }
    if (!state.has_sent) {
      send_messages(rank, lane, now_us);
    }
    state.is_busy = false;
    next_step(rank, state, now_us);
    if (ranks_[rank].lanes_left > 0) {
      start_lanes(rank, now_us);
      run_on_core(rank, cores_.leave(rank, now_us), now_us);
    }
  }

  void next_step(uint32_t rank, SimLaneState& lane, double now_us) {
    lane.step += static_cast<uint32_t>(lane.message().size());
    if (lane.step < lane.step_count) {
      return;
    }
    lane.step = 0;
    ++lane.loop;
    if (lane.has_ended() && --ranks_[rank].lanes_left == 0) {
      end_lanes(rank, now_us);
    }
  }

  /// States are compared whenever the lane with the most loops ahead ends one, where a skip is
  /// exact (steady.hpp), nobody wants to see every slice, and there is much to skip.
  void choose_pace() {
    constexpr uint32_t kLoopsMin = 8;
    pace_ = nullptr;
    steady_.forget();
    if (!may_skip_) {
      return;
    }
    uint32_t most = kLoopsMin;
    lanes_.for_all([&](uint32_t, const SimLaneState& lane) {
      const uint32_t left = lane.geometry->loops - lane.loop;
      if (left > most) {
        most = left;
        pace_ = &lane;
        pace_loop_ = lane.loop;
      }
    });
  }

  void look_for_period() {
    pace_loop_ = pace_->loop;
    SimProgress now = progress();
    switch (steady_.look(state_at(now))) {
      case SteadyState::Found::kNothing:
        break;
      case SteadyState::Found::kGivenUp:
        pace_ = nullptr;
        break;
      case SteadyState::Found::kBegin:
        period_begin_ = std::move(now);
        break;
      case SteadyState::Found::kEnd:
        skip_periods(now);
        choose_pace();
        break;
    }
  }

  [[nodiscard]] SimProgress progress() {
    SimProgress now{.time_us = clock_.now_us(),
                    .loops = std::vector<uint32_t>(network_.geometries.size()),
                    .messages = result_.messages,
                    .events = result_.events,
                    .wide_bytes = carrier_.wide_bytes()};
    lanes_.for_all([&](uint32_t, const SimLaneState& lane) {
      now.loops[lanes_.channel_of(lane)] = lane.loop;
    });
    return now;
  }

  /// All that decides what comes, relative to `now`.
  [[nodiscard]] SimState state_at(const SimProgress& now) {
    SimState state;
    lanes_.for_all([&](uint32_t, const SimLaneState& lane) {
      state.mix(uint64_t{lane.loop - now.loops[lanes_.channel_of(lane)]} << 32 | lane.step);
      state.mix((lane.is_busy ? 2U : 0U) | (lane.has_sent ? uint64_t{1} : 0U));
    });
    for (const RankState& rank : ranks_) {
      state.mix(static_cast<uint64_t>(rank.call) << 32 | rank.lanes_left);
    }
    for (const ConnectionState& connection : connections_) {
      state.mix(uint64_t{connection.unreleased} << 32 | connection.arrived);
    }
    carrier_.mix_into(state, now.time_us);
    clock_.mix_into(state);
    return state;
  }

  /// A period has ended at `now`: skips as many as there are before a lane's last loop.
  void skip_periods(const SimProgress& now) {
    const SimProgress& begin = period_begin_;
    const double period_us = now.time_us - begin.time_us;
    const auto loops_of = [&](const SimLaneState& lane) {
      return now.loops[lanes_.channel_of(lane)] - begin.loops[lanes_.channel_of(lane)];
    };
    auto periods = static_cast<uint64_t>((kExactUsMax - now.time_us) / period_us);
    lanes_.for_all([&](uint32_t, const SimLaneState& lane) {
      const uint32_t next = lane.loop + 1;
      if (loops_of(lane) > 0) {
        const uint32_t left = lane.geometry->loops - std::min(lane.geometry->loops, next + 1);
        periods = std::min<uint64_t>(periods, left / loops_of(lane));
      }
    });
    lanes_.for_all([&](uint32_t, SimLaneState& lane) {
      lane.loop += static_cast<uint32_t>(periods) * loops_of(lane);
    });
    std::vector<uint64_t> wide_bytes;
    for (size_t place = 0; place < now.wide_bytes.size(); ++place) {
      wide_bytes.push_back(periods * (now.wide_bytes[place] - begin.wide_bytes[place]));
    }
    result_.messages += periods * (now.messages - begin.messages);
    result_.events += periods * (now.events - begin.events);
    result_.events_skipped += periods * (now.events - begin.events);
    const double skipped_us = static_cast<double>(periods) * period_us;
    carrier_.skip(skipped_us, wide_bytes);
    clock_.skip(skipped_us);
  }

  const SimNetwork& network_;
  const SimJob& job_;
  const SimWatch& watch_;
  const SimFaults* faults_;
  SimClock clock_;
  SimCarrier carrier_;
  SimLanes lanes_;
  SimCores cores_;
  StepCosts costs_;
  std::vector<ConnectionState> connections_;
  std::vector<RankState> ranks_;
  SimResult result_;
  bool may_skip_;
  const SimLaneState* pace_ = nullptr;  // nullptr: no periods are looked for
  uint32_t pace_loop_ = 0;
  SteadyState steady_;
  SimProgress period_begin_;
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
