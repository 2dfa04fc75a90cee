// SPDX-License-Identifier: Apache-2.0
// How the messages of a simulation travel, until their kArrival event.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <vector>

#include "tools/fabric/fabric.hpp"
#include "tools/sim/clock.hpp"
#include "tools/sim/network.hpp"
#include "tools/sim/simulate.hpp"

namespace plexus {

class SimCarrier {
 public:
  SimCarrier(const SimNetwork& network,
             const Fabric* fabric,
             const SimWatch& watch,
             const SimFaults* faults,
             SimClock* clock);

  void send(uint32_t connection, double payload_bytes, double now_us);
  /// Of the kinds kDeparture, kHead and kFlowEnd.
  void take(const SimEvent& event);
  /// To be called when all events of a time have been taken.
  void settle(double now_us);
  /// By place of the sender: payload that has left for other datacenters.
  [[nodiscard]] const std::vector<uint64_t>& wide_bytes() const { return wide_bytes_; }
  /// When ports are free, without a fabric and without faults.
  void mix_into(SimState& state, double now_us) const;
  /// Skips a time in which `wide_bytes` more leave, by place.
  void skip(double us, const std::vector<uint64_t>& wide_bytes);
  /// Between the two ranks of a connection, without its bytes.
  [[nodiscard]] double latency_us(uint32_t connection) const;

 private:
  struct Ports {
    double send_free_us[kSimLinkKinds] = {};
    double recv_free_us[kSimLinkKinds] = {};
  };
  /// A connection through the fabric: its messages go one after the other.
  struct Flow {
    std::deque<double> bytes;  // of the messages; the first one is under way
    double left_bytes = 0;     // of the first one
    double rate = 0;           // bytes per us
    double since_us = 0;       // `left_bytes` was right then
    double latency_us = 0;
    uint64_t version = 0;
    FabricFlow ports{};
    std::vector<int> route;
  };

  /// A connection with faults, which hold messages back before they leave.
  struct Faulty {
    SimLinkFaults faults;
    uint64_t messages = 0;
    uint64_t bytes = 0;
    double free_us = 0;  // when the last message has left at the rate
    double left_us = 0;  // and with its delay
  };

  void add_faults();
  void hold_back(uint32_t number, double payload_bytes, double now_us);
  void depart(uint32_t number, double payload_bytes, double now_us);
  [[nodiscard]] const SimLink& link_of(const SimConnection& connection) const {
    return network_.job.link(connection.kind);
  }
  [[nodiscard]] bool has_ports(const SimConnection& connection) const {
    return fabric_ == nullptr || connection.kind == SimLinkKind::kNear;
  }
  void send_through_ports(uint32_t number, double duration_us, double now_us);
  void begin_message(uint32_t number, double now_us);
  /// A message has left. Between datacenters that frees its slot: their window follows bandwidth
  /// times delay (core/transport/network/xdc.hpp). Elsewhere the receiver frees it.
  void leave(uint32_t number, double at_us);
  void share(double now_us);
  void tell_rates(double now_us);

  const SimNetwork& network_;
  const Fabric* fabric_;
  const SimWatch& watch_;
  const SimFaults* faults_;
  SimClock& clock_;
  std::vector<Ports> ports_;          // [ranks]
  std::vector<Flow> flows_;           // [connections], with a fabric
  std::vector<uint64_t> wide_bytes_;  // [ranks]
  std::vector<Faulty> faulty_;        // [connections], with faults
  std::set<uint32_t> active_;         // flows with a message under way
  std::vector<double> told_;          // [links] last told rate
  bool is_dirty_ = false;             // `active_` has changed
};

}  // namespace plexus
