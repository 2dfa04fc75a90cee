// SPDX-License-Identifier: Apache-2.0
#include "tools/sim/cores.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace plexus {

SimCores::SimCores(const SimNetwork& network, SimClock* clock) : job_(network.job), clock_(clock) {
  if (job_.cores > 0) {
    seats_.resize(network.ranks.size());
    const int nodes = (network.nranks + job_.ranks_per_node - 1) / job_.ranks_per_node;
    cores_.resize(static_cast<size_t>(nodes) * static_cast<size_t>(job_.cores));
    place_ranks(network);
    begin_turns();
  }
}

/// The ranks of a node go to its cores in turn, by number or shuffled, and onto each in the order
/// of their numbers or shuffled.
void SimCores::place_ranks(const SimNetwork& network) {
  std::vector<uint32_t> order(network.ranks.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto per_node = static_cast<size_t>(job_.ranks_per_node);
  random_.seed(job_.shuffle);
  for (size_t first = 0; job_.shuffle > 0 && first < order.size(); first += per_node) {
    for (size_t last = std::min(order.size(), first + per_node) - 1; last > first; --last) {
      std::swap(order[last], order[first + random_() % (last - first + 1)]);
    }
  }
  for (size_t place = 0; place < order.size(); ++place) {
    const int rank = network.ranks[job_.are_bound ? order[place] : place].rank;
    Seat& seat = seats_[order[place]];
    const int local = rank % job_.ranks_per_node;
    seat.core = static_cast<size_t>(rank / job_.ranks_per_node) * static_cast<size_t>(job_.cores) +
                static_cast<size_t>(local % job_.cores);
    seat.place = cores_[seat.core].ranks.size();
    cores_[seat.core].ranks.push_back(order[place]);
  }
}

/// Turns go around already when the call begins.
void SimCores::begin_turns() {
  for (Core& core : cores_) {
    if (job_.shuffle > 0 && core.ranks.size() > 1) {
      core.turn = random_() % core.ranks.size();
      core.since_us = job_.turn_us * draw();
    }
  }
}

void SimCores::queue(uint32_t rank, uint32_t lane, double now_us) {
  seats_[rank].ready.push_back(lane);
  if (!cores_[seats_[rank].core].is_busy) {
    await_turn(rank, now_us);
  }
}

/// A rank with something to do runs when the turns on its idle core come to it.
void SimCores::await_turn(uint32_t rank, double now_us) {
  const Core& core = cores_[seats_[rank].core];
  const size_t count = core.ranks.size();
  const double turn_us = count > 1 ? job_.turn_us : 0;
  const double round_us = static_cast<double>(count) * turn_us;
  const size_t turns = (seats_[rank].place + count - core.turn) % count;
  const double first_us = core.since_us + static_cast<double>(turns) * turn_us;
  const double rounds = round_us > 0 ? std::max(0.0, std::ceil((now_us - first_us) / round_us)) : 0;
  clock_->add({.time_us = std::max(now_us, first_us + rounds * round_us),
               .kind = SimEvent::Kind::kTurn,
               .place = static_cast<uint32_t>(seats_[rank].place),
               .number = rank,
               .value = static_cast<double>(core.version)});
}

std::optional<uint32_t> SimCores::take_turn(const SimEvent& turn) {
  Core& core = cores_[seats_[turn.number].core];
  if (static_cast<uint64_t>(turn.value) != core.version) {
    return std::nullopt;
  }
  core.turn = turn.place;
  core.is_busy = true;
  ++core.version;
  return next_lane(turn.number);
}

uint32_t SimCores::next_lane(uint32_t rank) {
  const uint32_t lane = seats_[rank].ready.front();
  seats_[rank].ready.pop_front();
  return lane;
}

std::optional<uint32_t> SimCores::leave(uint32_t rank, double now_us) {
  if (job_.cores == 0) {
    return std::nullopt;
  }
  Core& core = cores_[seats_[rank].core];
  if (!core.is_busy || core.ranks[core.turn] != rank) {
    return std::nullopt;  // its call ended with steps that moved nothing
  }
  if (!seats_[rank].ready.empty()) {
    return next_lane(rank);
  }
  // cores whose turns were all alike would stay in step for ever
  constexpr double kSpread = 0.1;
  const size_t count = core.ranks.size();
  const double turns = job_.shuffle > 0 && count > 1 ? 1 + kSpread * (2 * draw() - 1) : 1;
  core.is_busy = false;
  core.turn = (core.turn + 1) % count;
  core.since_us = now_us + (count > 1 ? job_.turn_us * turns : 0);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t next = core.ranks[(core.turn + i) % count];
    if (!seats_[next].ready.empty()) {
      await_turn(next, now_us);
      break;
    }
  }
  return std::nullopt;
}

}  // namespace plexus
