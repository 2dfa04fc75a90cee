// SPDX-License-Identifier: Apache-2.0
#include "tools/sim/carrier.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

namespace plexus {
namespace {

constexpr double kBytesPerUsOfGb = 1000;

}  // namespace

SimCarrier::SimCarrier(const SimNetwork& network,
                       const Fabric* fabric,
                       const SimWatch& watch,
                       const SimFaults* faults,
                       SimClock* clock)
    : network_(network),
      fabric_(fabric),
      watch_(watch),
      faults_(faults),
      clock_(*clock),
      ports_(network.ranks.size()),
      wide_bytes_(network.ranks.size()) {
  if (faults != nullptr) {
    add_faults();
  }
  if (fabric == nullptr) {
    return;
  }
  flows_.resize(network.connections.size());
  told_.resize(fabric->links().size());
  const int per_node = network.job.ranks_per_node;
  const auto port_of = [&](uint32_t place) {
    const int rank = network.ranks[place].rank;
    return FabricPort{.node = rank / per_node, .rail = rank % per_node % fabric->rails()};
  };
  for (size_t number = 0; number < flows_.size(); ++number) {
    const SimConnection& connection = network.connections[number];
    Flow& flow = flows_[number];
    flow.latency_us = on_tick(link_of(connection).latency_us);
    if (!has_ports(connection)) {
      flow.ports = {.from = port_of(connection.source), .to = port_of(connection.target)};
      flow.route = fabric->route(flow.ports.from, flow.ports.to).value_or(std::vector<int>{});
      flow.latency_us += plexus::latency_us(*fabric, flow.route);
    }
  }
}

double SimCarrier::latency_us(uint32_t connection) const {
  return fabric_ == nullptr ? on_tick(link_of(network_.connections[connection]).latency_us)
                            : flows_[connection].latency_us;
}

/// The connections of a rank, one direction each, are numbered in the order of its steps.
void SimCarrier::add_faults() {
  const size_t count = network_.connections.size();
  using Place = std::tuple<uint32_t, uint32_t, size_t>;  // rank, place in it, connection
  std::vector<Place> sends;
  std::vector<Place> recvs;
  for (size_t number = 0; number < count; ++number) {
    const SimConnection& connection = network_.connections[number];
    sends.emplace_back(connection.source, connection.source_place, number);
    recvs.emplace_back(connection.target, connection.target_place, number);
  }
  std::vector<SimEnd> senders(count);
  std::vector<SimEnd> receivers(count);
  const auto name_ends = [this](std::vector<Place>& places, bool is_send,
                                std::vector<SimEnd>& ends) {
    std::sort(places.begin(), places.end());
    uint32_t next = 0;
    for (size_t i = 0; i < places.size(); ++i) {
      const auto [rank, place, number] = places[i];
      next = i > 0 && std::get<0>(places[i - 1]) == rank ? next + 1 : 0;
      const SimConnection& connection = network_.connections[number];
      ends[number] = {.rank = network_.ranks[rank].rank,
                      .peer = network_.ranks[is_send ? connection.target : connection.source].rank,
                      .number = next};
    }
  };
  name_ends(sends, true, senders);
  name_ends(recvs, false, receivers);
  faulty_.resize(count);
  for (size_t number = 0; number < count; ++number) {
    faulty_[number].faults = faults_->of_link(senders[number], receivers[number]);
  }
}

void SimCarrier::send(uint32_t number, double payload_bytes, double now_us) {
  if (!faulty_.empty() && faulty_[number].faults.any()) {
    hold_back(number, payload_bytes, now_us);
  } else {
    depart(number, payload_bytes, now_us);
  }
}

/// A message leaves when those before it have left at the rate, after each stall that begins with
/// its bytes, and then after the delay; in order. What is cut never leaves.
void SimCarrier::hold_back(uint32_t number, double payload_bytes, double now_us) {
  Faulty& one = faulty_[number];
  const SimLinkFaults& faults = one.faults;
  const uint64_t before = one.bytes;
  one.bytes += static_cast<uint64_t>(payload_bytes);
  if (one.bytes > faults.cut_at_byte) {
    return;
  }
  const uint64_t stalls = faults.stall_every_bytes == 0 ? 0
                                                        : one.bytes / faults.stall_every_bytes -
                                                              before / faults.stall_every_bytes;
  one.free_us = std::max(now_us, one.free_us) + static_cast<double>(stalls) * faults.stall_us +
                payload_bytes * faults.us_per_byte;
  const double jitter_us = faults.jitter_us * faults_->random(number, one.messages++);
  one.left_us = std::max(one.left_us, one.free_us + faults.delay_us + jitter_us);
  clock_.add({.time_us = one.left_us,
              .kind = SimEvent::Kind::kDeparture,
              .place = network_.connections[number].source_place,
              .number = number,
              .value = payload_bytes});
}

void SimCarrier::depart(uint32_t number, double payload_bytes, double now_us) {
  const SimConnection& connection = network_.connections[number];
  const double bytes = payload_bytes * wire_factor(network_.job.protocol);
  if (connection.kind == SimLinkKind::kWide) {
    wide_bytes_[connection.source] += static_cast<uint64_t>(payload_bytes);
  }
  if (has_ports(connection)) {
    send_through_ports(number, on_tick(bytes * link_of(connection).us_per_byte), now_us);
    return;
  }
  flows_[number].bytes.push_back(bytes);
  if (flows_[number].bytes.size() == 1) {
    begin_message(number, now_us);
  }
}

void SimCarrier::send_through_ports(uint32_t number, double duration_us, double now_us) {
  const SimConnection& connection = network_.connections[number];
  double& free_us = ports_[connection.source].send_free_us[static_cast<size_t>(connection.kind)];
  const double begin_us = std::max(now_us, free_us);
  free_us = begin_us + duration_us;
  leave(number, free_us);
  clock_.add({.time_us = begin_us + latency_us(number),
              .kind = SimEvent::Kind::kHead,
              .place = connection.target_place,
              .number = number,
              .value = duration_us});
}

void SimCarrier::leave(uint32_t number, double at_us) {
  if (network_.connections[number].kind == SimLinkKind::kWide) {
    clock_.add({.time_us = at_us,
                .kind = SimEvent::Kind::kSlotFree,
                .place = network_.connections[number].source_place,
                .number = number});
  }
}

void SimCarrier::mix_into(SimState& state, double now_us) const {
  for (const Ports& ports : ports_) {
    for (int kind = 0; kind < kSimLinkKinds; ++kind) {
      state.mix(std::max(0.0, ports.send_free_us[kind] - now_us));
      state.mix(std::max(0.0, ports.recv_free_us[kind] - now_us));
    }
  }
}

void SimCarrier::skip(double us, const std::vector<uint64_t>& wide_bytes) {
  for (Ports& ports : ports_) {
    for (int kind = 0; kind < kSimLinkKinds; ++kind) {
      ports.send_free_us[kind] += us;
      ports.recv_free_us[kind] += us;
    }
  }
  for (size_t place = 0; place < wide_bytes_.size(); ++place) {
    wide_bytes_[place] += wide_bytes[place];
  }
}

void SimCarrier::begin_message(uint32_t number, double now_us) {
  Flow& flow = flows_[number];
  flow.left_bytes = flow.bytes.front();
  flow.since_us = now_us;
  flow.rate = 0;
  active_.insert(number);
  is_dirty_ = true;
}

void SimCarrier::take(const SimEvent& event) {
  if (event.kind == SimEvent::Kind::kDeparture) {
    depart(event.number, event.value, event.time_us);
    return;
  }
  const SimConnection& connection = network_.connections[event.number];
  if (event.kind == SimEvent::Kind::kHead) {
    double& free_us = ports_[connection.target].recv_free_us[static_cast<size_t>(connection.kind)];
    free_us = std::max(event.time_us, free_us) + event.value;
    clock_.add({.time_us = free_us,
                .kind = SimEvent::Kind::kArrival,
                .place = connection.target_place,
                .number = event.number});
    return;
  }
  Flow& flow = flows_[event.number];
  if (static_cast<uint64_t>(event.value) != flow.version) {
    return;  // its rate has changed since
  }
  clock_.add({.time_us = event.time_us + flow.latency_us,
              .kind = SimEvent::Kind::kArrival,
              .place = connection.target_place,
              .number = event.number});
  leave(event.number, event.time_us);
  flow.bytes.pop_front();
  ++flow.version;
  active_.erase(event.number);
  is_dirty_ = true;
  if (!flow.bytes.empty()) {
    begin_message(event.number, event.time_us);
  }
}

void SimCarrier::settle(double now_us) {
  if (is_dirty_) {
    is_dirty_ = false;
    share(now_us);
    if (watch_.on_rate) {
      tell_rates(now_us);
    }
  }
}

/// All flows under way share the fabric anew. A flow whose rate stays keeps its end.
void SimCarrier::share(double now_us) {
  std::vector<FabricFlow> ports;
  for (const uint32_t number : active_) {
    ports.push_back(flows_[number].ports);
  }
  const std::vector<double> rates = share_links(*fabric_, ports);
  const double most = network_.job.costs.far.us_per_byte > 0
                          ? 1 / network_.job.costs.far.us_per_byte
                          : std::numeric_limits<double>::infinity();
  size_t at = 0;
  for (const uint32_t number : active_) {
    const double rate = std::min(rates[at++] * kBytesPerUsOfGb, most);
    Flow& flow = flows_[number];
    if (rate == flow.rate) {
      continue;
    }
    flow.left_bytes = std::max(0.0, flow.left_bytes - flow.rate * (now_us - flow.since_us));
    flow.since_us = now_us;
    flow.rate = rate;
    ++flow.version;
    if (rate > 0) {
      clock_.add({.time_us = now_us + flow.left_bytes / rate,
                  .kind = SimEvent::Kind::kFlowEnd,
                  .place = 0,
                  .number = number,
                  .value = static_cast<double>(flow.version)});
    }
  }
}

void SimCarrier::tell_rates(double now_us) {
  std::map<int, double> rates;
  for (const uint32_t number : active_) {
    for (const int link : flows_[number].route) {
      rates[link] += flows_[number].rate / kBytesPerUsOfGb;
    }
  }
  for (size_t link = 0; link < told_.size(); ++link) {
    const auto found = rates.find(static_cast<int>(link));
    const double rate = found == rates.end() ? 0 : found->second;
    if (rate != told_[link]) {
      told_[link] = rate;
      watch_.on_rate({.link = static_cast<int>(link), .at_us = now_us, .gb_per_s = rate});
    }
  }
}

}  // namespace plexus
