// SPDX-License-Identifier: Apache-2.0
#include "tools/sim/simulate.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <numeric>
#include <random>
#include <span>

#include "kernels/layout/fifo.hpp"
#include "tools/sim/carrier.hpp"
#include "tools/sim/clock.hpp"

namespace plexus {
namespace {

/// A lane and where it is, together: it is what nearly every event looks at.
struct alignas(64) LaneState {
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
};

struct RankState {
  uint32_t first_lane = 0;  // index of it
  uint32_t lanes = 0;
  uint32_t lanes_left = 0;  // of this call
  int call = 0;
};

/// A rank on its core.
struct Seat {
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
        connections_(network.connections.size()),
        ranks_(network.ranks.size()),
        shares_cores_(job_.shares_cores()),
        may_skip_(fabric == nullptr && faults == nullptr && !watch.on_slice &&
                  network.job.cores == 0 && !network.job.exact_spans) {
    add_lanes();
    if (job_.cores > 0) {
      seats_.resize(ranks_.size());
      const int nodes = (network.nranks + job_.ranks_per_node - 1) / job_.ranks_per_node;
      cores_.resize(static_cast<size_t>(nodes) * static_cast<size_t>(job_.cores));
      place_on_cores();
      begin_turns();
    }
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
  void add_lanes() {
    size_t peers = 0;
    for (const SimRank& rank : network_.ranks) {
      for (const SimLane& lane : rank.lanes) {
        peers += lane.connections.size();
      }
    }
    peers_.reserve(peers);  // lanes point into it
    for (size_t place = 0; place < ranks_.size(); ++place) {
      const SimRank& rank = network_.ranks[place];
      ranks_[place].first_lane = static_cast<uint32_t>(lanes_.size());
      ranks_[place].lanes = static_cast<uint32_t>(rank.lanes.size());
      for (const SimLane& lane : rank.lanes) {
        const auto channel = static_cast<size_t>(lane.channel);
        LaneState& state = lanes_.emplace_back();
        const SimLane& alike = find_alike(lane);
        state.steps = alike.steps->steps.data();
        state.step_count = static_cast<uint32_t>(alike.steps->steps.size());
        state.first = alike.first.data();
        state.connections = peers_.data() + peers_.size();
        peers_.insert(peers_.end(), lane.connections.begin(), lane.connections.end());
        state.geometry = &network_.geometries[channel];
        state.channel_lane = ranks_[place].first_lane + rank.first_lanes[channel];
      }
    }
  }

  /// A lane with the same steps: those that many ranks share stay in the caches.
  const SimLane& find_alike(const SimLane& lane) {
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

  /// The ranks of a node go to its cores in turn, by number or shuffled, and onto each in the order
  /// of their numbers or shuffled.
  void place_on_cores() {
    std::vector<uint32_t> order(network_.ranks.size());
    std::iota(order.begin(), order.end(), 0U);
    const auto per_node = static_cast<size_t>(job_.ranks_per_node);
    random_.seed(job_.shuffle);
    for (size_t first = 0; job_.shuffle > 0 && first < order.size(); first += per_node) {
      for (size_t last = std::min(order.size(), first + per_node) - 1; last > first; --last) {
        std::swap(order[last], order[first + random_() % (last - first + 1)]);
      }
    }
    for (size_t place = 0; place < order.size(); ++place) {
      const int rank = network_.ranks[job_.are_bound ? order[place] : place].rank;
      Seat& state = seats_[order[place]];
      const int local = rank % job_.ranks_per_node;
      state.core =
          static_cast<size_t>(rank / job_.ranks_per_node) * static_cast<size_t>(job_.cores) +
          static_cast<size_t>(local % job_.cores);
      state.place = cores_[state.core].ranks.size();
      cores_[state.core].ranks.push_back(order[place]);
    }
  }

  /// Turns go around already when the call begins.
  void begin_turns() {
    for (CoreState& core : cores_) {
      if (job_.shuffle > 0 && core.ranks.size() > 1) {
        core.turn = random_() % core.ranks.size();
        core.since_us = job_.turn_us * draw();
      }
    }
  }

  void find_waits() {
    for_lanes([this](uint32_t rank, const LaneState& lane) {
      if (!has_ended(lane) && is_after_done(lane)) {
        find_wait(rank, lane);
      }
    });
  }

  void find_wait(uint32_t rank, const LaneState& lane) {
    const Step& step = step_of(lane);
    const uint32_t* const at = connections_of(lane);
    for (int i = 0; i < step.receives + step.sends; ++i) {
      const SimConnection& connection = network_.connections[at[i]];
      const ConnectionState& state = connections_[at[i]];
      const bool receives = i < step.receives;
      if (receives ? state.arrived == 0 : state.unreleased >= most_under_way(lane, i)) {
        result_.waits.push_back(
            {.rank = network_.ranks[rank].rank,
             .peer = network_.ranks[receives ? connection.source : connection.target].rank,
             .receives = receives});
        return;
      }
    }
  }

  [[nodiscard]] LaneState& lane_at(uint32_t rank, uint32_t lane) {
    return lanes_[ranks_[rank].first_lane + lane];
  }
  /// Calls `use` with each lane of a rank.
  template <class Use>
  void for_lanes_of(uint32_t rank, const Use& use) {
    const RankState& state = ranks_[rank];
    for (uint32_t lane = 0; lane < state.lanes; ++lane) {
      use(lane, lanes_[state.first_lane + lane]);
    }
  }
  [[nodiscard]] static const Step& step_of(const LaneState& lane) { return lane.steps[lane.step]; }
  /// Of the lane's next step, those to receive from first.
  [[nodiscard]] static const uint32_t* connections_of(const LaneState& lane) {
    return lane.connections + lane.first[lane.step];
  }
  [[nodiscard]] static bool has_ended(const LaneState& lane) {
    return lane.step_count == 0 || lane.loop >= lane.geometry->loops;
  }
  /// The steps of the message that the lane's next step begins.
  [[nodiscard]] static std::span<const Step> message_of(const LaneState& lane) {
    return {&step_of(lane), steps_of_message(&step_of(lane))};
  }
  /// Of the message, or of what the step moves without one.
  [[nodiscard]] uint64_t bytes_of(const LaneState& lane) const {
    const std::span<const Step> steps = message_of(lane);
    if (!job_.exact_spans) {
      const Geometry& geometry = *lane.geometry;
      const uint64_t chunks = steps.size() - 1 + static_cast<uint64_t>(steps.front().chunks);
      const uint64_t bytes = chunks * chunk_bytes(geometry, lane.loop, job_.element_bytes);
      const uint64_t whole = geometry.part_count * job_.element_bytes;
      return geometry.blocked || chunks == 1 ? bytes : std::min(bytes, whole);
    }
    uint64_t bytes = 0;
    for (const Step& step : steps) {
      bytes += step_bytes(*lane.geometry, step, lane.loop, job_.element_bytes);
    }
    return bytes;
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
        take_turn(event);
        break;
      case SimEvent::Kind::kCallEnd:
        end_call(event.number, event.time_us);
        break;
    }
  }

  void begin_call(uint32_t rank, double now_us) {
    for_lanes_of(rank, [&](uint32_t, LaneState& lane) {
      lane.loop = lane.step = 0;
      ranks_[rank].lanes_left += has_ended(lane) ? 0 : 1;
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
      for_lanes_of(rank, [&](uint32_t, LaneState& lane) {
        skipped = skip_empty(rank, lane, now_us) || skipped;
      });
    }
    for (uint32_t lane = 0; lane < ranks_[rank].lanes; ++lane) {
      start_lane(rank, lane, now_us);
    }
  }

  /// Goes past a step that moves nothing. False: there is none now.
  bool skip_empty(uint32_t rank, LaneState& lane, double now_us) {
    if (lane.is_busy || has_ended(lane) || !is_after_done(lane) || bytes_of(lane) > 0) {
      return false;
    }
    next_step(rank, lane, now_us);
    return true;
  }

  /// Begins the lane's next step if it can begin, or queues it for the rank's core.
  void start_lane(uint32_t rank, uint32_t lane, double now_us) {
    LaneState& state = lane_at(rank, lane);
    if (state.is_busy || has_ended(state) || !may_begin(state)) {
      return;
    }
    state.is_busy = true;
    if (job_.cores == 0) {
      begin_step(rank, lane, now_us);
      return;
    }
    seats_[rank].ready.push_back(lane);
    if (!core_of(rank).is_busy) {
      await_turn(rank, now_us);
    }
  }

  /// From 0 to 1.
  double draw() {
    return static_cast<double>(random_()) / static_cast<double>(std::mt19937::max());
  }
  /// How long a turn is, in turns: cores whose turns were all alike would stay in step for ever.
  double draw_turn() {
    constexpr double kSpread = 0.1;
    return job_.shuffle == 0 ? 1 : 1 + kSpread * (2 * draw() - 1);
  }

  [[nodiscard]] CoreState& core_of(uint32_t rank) { return cores_[seats_[rank].core]; }

  /// A rank with something to do runs when the turns on its idle core come to it.
  void await_turn(uint32_t rank, double now_us) {
    const CoreState& core = core_of(rank);
    const size_t count = core.ranks.size();
    const double turn_us = count > 1 ? job_.turn_us : 0;
    const double round_us = static_cast<double>(count) * turn_us;
    const size_t turns = (seats_[rank].place + count - core.turn) % count;
    const double first_us = core.since_us + static_cast<double>(turns) * turn_us;
    const double rounds =
        round_us > 0 ? std::max(0.0, std::ceil((now_us - first_us) / round_us)) : 0;
    clock_.add({.time_us = std::max(now_us, first_us + rounds * round_us),
                .kind = SimEvent::Kind::kTurn,
                .place = static_cast<uint32_t>(seats_[rank].place),
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
    const uint32_t lane = seats_[rank].ready.front();
    seats_[rank].ready.pop_front();
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
    if (!seats_[rank].ready.empty()) {
      run_on_core(rank, now_us);
      return;
    }
    const size_t count = core.ranks.size();
    core.is_busy = false;
    core.turn = (core.turn + 1) % count;
    core.since_us = now_us + (count > 1 ? job_.turn_us * draw_turn() : 0);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t next = core.ranks[(core.turn + i) % count];
      if (!seats_[next].ready.empty()) {
        await_turn(next, now_us);
        return;
      }
    }
  }

  void begin_step(uint32_t rank, uint32_t lane, double begin_us) {
    LaneState& state = lane_at(rank, lane);
    const double duration_us =
        duration_of(state, static_cast<double>(bytes_of(state))) +
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
    if (const double early_us = early_of(state); early_us > 0) {
      clock_.add({.time_us = std::max(begin_us, end_us - on_tick(early_us)),
                  .kind = SimEvent::Kind::kHandOver,
                  .place = lane,
                  .number = rank});
    }
    clock_.add(
        {.time_us = end_us, .kind = SimEvent::Kind::kStepEnd, .place = lane, .number = rank});
  }

  [[nodiscard]] bool is_after_done(const LaneState& lane) const {
    const After& after = step_of(lane).after;
    if (after.lane < 0) {
      return true;
    }
    const LaneState& other = lanes_[lane.channel_lane + static_cast<uint32_t>(after.lane)];
    return other.loop > lane.loop ||
           (other.loop == lane.loop && other.step > static_cast<uint32_t>(after.step));
  }

  [[nodiscard]] bool may_begin(const LaneState& lane) const {
    if (!is_after_done(lane)) {
      return false;
    }
    const Step& step = step_of(lane);
    const uint32_t* const at = connections_of(lane);
    for (int i = 0; i < step.receives; ++i) {
      if (connections_[at[i]].arrived == 0) {
        return false;
      }
    }
    for (int i = step.receives; i < step.receives + step.sends; ++i) {
      if (connections_[at[i]].unreleased >= most_under_way(lane, i)) {
        return false;
      }
    }
    return true;
  }

  /// Messages as the one to the step's peer number `peer` whose slots are not free.
  [[nodiscard]] uint64_t most_under_way(const LaneState& lane, int peer) const {
    const double small_bytes = link_of(lane, peer).work.small_bytes;
    return small_bytes > 0 && static_cast<double>(bytes_of(lane)) <= small_bytes ? kHeaders
                                                                                 : kSlots;
  }

  /// How long before its end a step hands its messages over.
  [[nodiscard]] double early_of(const LaneState& lane) const {
    const Step& step = step_of(lane);
    return step.sends == 0 ? 0 : link_of(lane, step.receives).work.early_us;
  }
  /// Of the step's peer number `peer`.
  [[nodiscard]] const SimLink& link_of(const LaneState& lane, int peer) const {
    return job_.link(network_.connections[connections_of(lane)[peer]].kind);
  }

  [[nodiscard]] double duration_of(const LaneState& lane, double bytes) const {
    const Step& step = step_of(lane);
    const SimCosts& costs = job_.costs;
    double duration_us = work_of(lane, bytes);
    for (int i = 0; i < step.receives + step.sends; ++i) {
      duration_us += link_of(lane, i).message_us;
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
  [[nodiscard]] double work_of(const LaneState& lane, double bytes) const {
    const Step& step = step_of(lane);
    const bool combines = step.source != Buffer::kNone;
    const bool apart = step.target != Buffer::kNone && step.target != step.source;
    const auto ends_of = [&](const SimWork& work) -> const SimEnds& {
      return job_.is_one_way ? work.one_way : work.both_ways;
    };
    const auto time_of = [&](const SimCurve& curve, const SimWork& work) {
      return curve.of_message(bytes, static_cast<double>(job_.node_bytes), work.slot_bytes,
                              lane.geometry->loops == 1);
    };
    double work_us = 0;
    for (int i = 0; i < step.receives; ++i) {
      const SimWork& work = link_of(lane, i).work;
      const SimEnds& ends = ends_of(work);
      work_us += one_core_part(lane, i, bytes) * time_of(!combines ? ends.recv
                                                         : apart   ? ends.combine_apart
                                                                   : ends.combine,
                                                         work);
      if (shares_cores_) {
        work_us += bytes * work.crowd_us_per_byte.at(static_cast<double>(job_.node_bytes), 0);
      }
    }
    for (int i = step.receives; i < step.receives + step.sends; ++i) {
      const SimWork& work = link_of(lane, i).work;
      // what arrives and has no target is made in the first slot that it leaves by
      const bool is_made_there =
          i == step.receives && step.receives > 0 && step.target == Buffer::kNone;
      const SimCurve& send = ends_of(work).send;
      work_us += one_core_part(lane, i, bytes) * (is_made_there ? send.at(0) : time_of(send, work));
    }
    const SimWork& own = job_.costs.near.work;
    if (step.receives == 0 && step.source != Buffer::kNone && apart) {
      work_us += time_of(own.copy, own);
    } else if (step.accumulates) {
      work_us += time_of(ends_of(own).combine, own);
    }
    return work_us;
  }

  /// Of the work that a message of the step, the one of its peer number `peer`, is between cores.
  [[nodiscard]] double one_core_part(const LaneState& lane, int peer, double bytes) const {
    const SimConnection& connection = network_.connections[connections_of(lane)[peer]];
    return shares_cores_ && seats_[connection.source].core == seats_[connection.target].core
               ? link_of(lane, peer).work.one_core.at(bytes, 1)
               : 1;
  }

  void send_messages(uint32_t rank, uint32_t lane, double now_us) {
    LaneState& state = lane_at(rank, lane);
    const Step& step = step_of(state);
    const uint32_t* const at = connections_of(state);
    for (int i = step.receives; i < step.receives + step.sends; ++i) {
      ++connections_[at[i]].unreleased;
      ++result_.messages;
      carrier_.send(at[i], static_cast<double>(bytes_of(state)), now_us);
    }
    state.has_sent = true;
  }

  void end_step(uint32_t rank, uint32_t lane, double now_us) {
    LaneState& state = lane_at(rank, lane);
    const Step& step = step_of(state);
    const uint32_t* const at = connections_of(state);
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
      leave_core(rank, now_us);
    }
  }

  void next_step(uint32_t rank, LaneState& lane, double now_us) {
    lane.step += static_cast<uint32_t>(message_of(lane).size());
    if (lane.step < lane.step_count) {
      return;
    }
    lane.step = 0;
    ++lane.loop;
    if (has_ended(lane) && --ranks_[rank].lanes_left == 0) {
      end_lanes(rank, now_us);
    }
  }

  /// Calls `use` with each lane that has steps, and its rank.
  template <class Use>
  void for_lanes(const Use& use) {
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      for_lanes_of(rank, [&](uint32_t, LaneState& lane) {
        if (lane.step_count > 0) {
          use(rank, lane);
        }
      });
    }
  }
  [[nodiscard]] size_t channel_of(const LaneState& lane) const {
    return static_cast<size_t>(lane.geometry - network_.geometries.data());
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
    for_lanes([&](uint32_t, const LaneState& lane) {
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
    for_lanes([&](uint32_t, const LaneState& lane) { now.loops[channel_of(lane)] = lane.loop; });
    return now;
  }

  /// All that decides what comes, relative to `now`.
  [[nodiscard]] SimState state_at(const SimProgress& now) {
    SimState state;
    for_lanes([&](uint32_t, const LaneState& lane) {
      state.mix(uint64_t{lane.loop - now.loops[channel_of(lane)]} << 32 | lane.step);
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
    const auto loops_of = [&](const LaneState& lane) {
      return now.loops[channel_of(lane)] - begin.loops[channel_of(lane)];
    };
    auto periods = static_cast<uint64_t>((kExactUsMax - now.time_us) / period_us);
    for_lanes([&](uint32_t, const LaneState& lane) {
      const uint32_t next = lane.loop + 1;
      if (loops_of(lane) > 0) {
        const uint32_t left = lane.geometry->loops - std::min(lane.geometry->loops, next + 1);
        periods = std::min<uint64_t>(periods, left / loops_of(lane));
      }
    });
    for_lanes([&](uint32_t, LaneState& lane) {
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
  std::vector<ConnectionState> connections_;
  std::vector<LaneState> lanes_;  // of all ranks
  std::vector<uint32_t> peers_;   // the connections of their steps
  std::vector<const SimLane*> alike_;
  std::vector<RankState> ranks_;
  std::vector<Seat> seats_;       // [ranks], with cores
  std::vector<CoreState> cores_;  // [nodes][cores of each]
  std::mt19937 random_;
  SimResult result_;
  bool shares_cores_;
  bool may_skip_;
  const LaneState* pace_ = nullptr;  // nullptr: no periods are looked for
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
