// SPDX-License-Identifier: Apache-2.0
#include "tools/sim/carrier.hpp"

#include <algorithm>
#include <map>

namespace plexus {
namespace {

constexpr double kBytesPerUsOfGb = 1000;

}  // namespace

SimCarrier::SimCarrier(const SimNetwork& network,
                       const Fabric* fabric,
                       const SimWatch& watch,
                       SimClock* clock)
    : network_(network),
      fabric_(fabric),
      watch_(watch),
      clock_(*clock),
      ports_(network.ranks.size()) {
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
    flow.latency_us = link_of(connection).latency_us;
    if (!has_ports(connection)) {
      flow.ports = {.from = port_of(connection.source), .to = port_of(connection.target)};
      flow.route = fabric->route(flow.ports.from, flow.ports.to).value_or(std::vector<int>{});
      flow.latency_us += plexus::latency_us(*fabric, flow.route);
    }
  }
}

double SimCarrier::latency_us(uint32_t connection) const {
  return fabric_ == nullptr ? link_of(network_.connections[connection]).latency_us
                            : flows_[connection].latency_us;
}

void SimCarrier::send(uint32_t number, double payload_bytes, double now_us) {
  const SimConnection& connection = network_.connections[number];
  const double bytes = payload_bytes * wire_factor(network_.job.protocol);
  if (has_ports(connection)) {
    send_through_ports(number, bytes * link_of(connection).us_per_byte, now_us);
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

void SimCarrier::begin_message(uint32_t number, double now_us) {
  Flow& flow = flows_[number];
  flow.left_bytes = flow.bytes.front();
  flow.since_us = now_us;
  flow.rate = 0;
  active_.insert(number);
  is_dirty_ = true;
}

void SimCarrier::take(const SimEvent& event) {
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
