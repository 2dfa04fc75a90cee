// SPDX-License-Identifier: Apache-2.0
#include "kernels/program/cost.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "kernels/layout/fifo.hpp"

namespace plexus {
namespace {

/// Where ranks are.
struct Places {
  std::vector<int> host_of;
  std::vector<int> datacenter_of;
  int datacenters = 1;

  [[nodiscard]] bool is_xdc(int from, int to) const {
    return datacenter_of[static_cast<size_t>(from)] != datacenter_of[static_cast<size_t>(to)];
  }
  [[nodiscard]] bool is_net(int from, int to) const {
    return host_of[static_cast<size_t>(from)] != host_of[static_cast<size_t>(to)] &&
           !is_xdc(from, to);
  }
};

Places places_of(const RecordInput& input) {
  const size_t nranks = input.ring.size();
  Places places{.host_of = std::vector<int>(nranks), .datacenter_of = std::vector<int>(nranks)};
  for (size_t place = 0; place < nranks; ++place) {
    const auto rank = static_cast<size_t>(input.ring[place]);
    const auto next =
        std::upper_bound(input.nodes.begin(), input.nodes.end(), static_cast<int>(place));
    places.host_of[rank] = static_cast<int>(next - input.nodes.begin());
    if (!input.datacenters.empty()) {
      places.datacenter_of[rank] = input.datacenters[place];
      places.datacenters = std::max(places.datacenters, input.datacenters[place] + 1);
    }
  }
  return places;
}

/// Messages on the longest chain, and messages between hosts and between datacenters on the chain
/// with most of them.
struct Depth {
  int all = 0;
  int net = 0;
  int xdc = 0;
  void take(const Depth& other) {
    all = std::max(all, other.all);
    net = std::max(net, other.net);
    xdc = std::max(xdc, other.xdc);
  }
};

/// One execution that only tracks chains of messages.
class DepthRun {
 public:
  DepthRun(LaneNetwork& network, const Places& places)
      : network_(network),
        places_(places),
        depths_(network.lanes().size()),
        messages_(network.connections().size()) {}

  Depth run() {
    network_.run(kSlots, [&](uint32_t lane) { return run_step(lane); });
    Depth deepest;
    for (const Depth& depth : depths_) {
      deepest.take(depth);
    }
    return deepest;
  }

 private:
  bool run_step(uint32_t index) {
    const LaneNetwork::LaneState& lane = network_.lanes()[index];
    const Step& step = network_.next_step(lane);
    Depth& depth = depths_[index];
    if (step.after.lane >= 0) {
      const uint32_t other =
          network_.first_lane(lane.rank) + static_cast<uint32_t>(step.after.lane);
      depth.take(done_[{other, step.after.step}]);
    }
    for (const uint32_t connection : network_.recv_connections(lane.rank, step)) {
      depth.take(messages_[connection][network_.connections()[connection].taken]);
    }
    for (const uint32_t connection : network_.send_connections(lane.rank, step)) {
      const auto& ends = network_.connections()[connection];
      messages_[connection].push_back(
          {.all = depth.all + 1,
           .net = depth.net + (places_.is_net(ends.source, ends.target) ? 1 : 0),
           .xdc = depth.xdc + (places_.is_xdc(ends.source, ends.target) ? 1 : 0)});
    }
    if (network_.has_after(lane.rank)) {
      done_[{index, static_cast<int>(lane.next)}] = depth;
    }
    return true;
  }

  LaneNetwork& network_;
  const Places& places_;
  std::vector<Depth> depths_;  // by lane
  std::vector<std::vector<Depth>> messages_;
  std::map<std::pair<uint32_t, int>, Depth> done_;  // by lane and step
};

/// The chunks between hosts and between datacenters.
void count_places(const LaneNetwork& network, const Places& places, LoopCost& cost) {
  const auto datacenters = static_cast<size_t>(places.datacenters);
  std::vector<int> sent(places.host_of.size());
  std::vector<int> received(places.host_of.size());
  cost.xdc_chunks.resize(datacenters * datacenters);
  for (const auto& connection : network.connections()) {
    const auto source = static_cast<size_t>(connection.source);
    const auto target = static_cast<size_t>(connection.target);
    if (places.is_xdc(connection.source, connection.target)) {
      cost.xdc_chunks[static_cast<size_t>(places.datacenter_of[source]) * datacenters +
                      static_cast<size_t>(places.datacenter_of[target])] += connection.sent;
    } else if (places.is_net(connection.source, connection.target)) {
      sent[source] += static_cast<int>(connection.sent);
      received[target] += static_cast<int>(connection.sent);
      cost.net_chunks_in_all += connection.sent;
    }
  }
  cost.net_chunks = std::max(*std::max_element(sent.begin(), sent.end()),
                             *std::max_element(received.begin(), received.end()));
}

}  // namespace

int64_t LoopCost::xdc_chunks_out() const {
  const auto datacenters = static_cast<size_t>(std::lround(std::sqrt(xdc_chunks.size())));
  int64_t most = 0;
  for (size_t from = 0; from < datacenters; ++from) {
    const auto row = xdc_chunks.begin() + static_cast<std::ptrdiff_t>(from * datacenters);
    most = std::max(
        most, std::accumulate(row, row + static_cast<std::ptrdiff_t>(datacenters), int64_t{0}));
  }
  return most;
}

int count_chunks_moved(const LaneNetwork& network, int nranks) {
  std::vector<int> sent(static_cast<size_t>(nranks));
  std::vector<int> received(sent.size());
  for (const auto& connection : network.connections()) {
    if (connection.source < nranks) {
      sent[static_cast<size_t>(connection.source)] += static_cast<int>(connection.sent);
    }
    if (connection.target < nranks) {
      received[static_cast<size_t>(connection.target)] += static_cast<int>(connection.sent);
    }
  }
  return std::max(*std::max_element(sent.begin(), sent.end()),
                  *std::max_element(received.begin(), received.end()));
}

int64_t count_chunks_in_all(const LaneNetwork& network) {
  const auto& connections = network.connections();
  return std::accumulate(
      connections.begin(), connections.end(), int64_t{0},
      [](int64_t sum, const auto& connection) { return sum + int64_t{connection.sent}; });
}

int count_chunks_reduced(std::span<const Program> programs) {
  int most = 0;
  for (const Program& program : programs) {
    int reduced = 0;
    for (const Lane& lane : program.lanes) {
      for (const Step& step : lane.steps) {
        const int operands =
            step.receives + (step.source != Buffer::kNone ? 1 : 0) + (step.accumulates ? 1 : 0);
        reduced += std::max(operands - 1, 0);
      }
    }
    most = std::max(most, reduced);
  }
  return most;
}

LoopCost count_cost(const Algorithm& algorithm, const RecordInput& input) {
  const size_t nranks = input.ring.size();
  const Places places = places_of(input);
  std::vector<Program> programs;
  programs.reserve(nranks);
  for (size_t rank = 0; rank < nranks; ++rank) {
    RecordInput own = input;
    own.rank = static_cast<int>(rank);
    programs.push_back(program_of(algorithm, own));
  }
  LaneNetwork network(programs);
  const Depth depth = DepthRun(network, places).run();
  LoopCost cost;
  cost.chunks = programs.front().chunks;
  cost.rounds = depth.all;
  cost.net_rounds = depth.net;
  cost.xdc_rounds = depth.xdc;
  cost.chunks_moved = count_chunks_moved(network, static_cast<int>(nranks));
  cost.chunks_in_all = count_chunks_in_all(network);
  cost.chunks_reduced = count_chunks_reduced(programs);
  count_places(network, places, cost);
  return cost;
}

}  // namespace plexus
