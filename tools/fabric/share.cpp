// SPDX-License-Identifier: Apache-2.0
// Max-min fair sharing by progressive filling: all flows grow equally until a link is full; its
// flows are then settled, and the others continue to grow.
#include <algorithm>
#include <limits>
#include <queue>

#include "tools/fabric/fabric.hpp"

namespace plexus {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kGbitPerGb = 8;

struct LinkUse {
  double left_gb_per_s = 0;
  std::vector<int> flows;
  int unsettled = 0;
  /// GB/s of each unsettled flow if only this link were limiting.
  [[nodiscard]] double level() const { return std::max(0.0, left_gb_per_s) / unsettled; }
};

class Filling {
 public:
  Filling(const Fabric& fabric, std::span<const FabricFlow> flows)
      : rates_(flows.size(), -1), routes_(flows.size()) {
    for (size_t flow = 0; flow < flows.size(); ++flow) {
      auto route = fabric.route(flows[flow].from, flows[flow].to);
      if (!route || route->empty()) {
        rates_[flow] = route ? kInfinite : 0;
        continue;
      }
      routes_[flow] = std::move(*route);
      double cable_gb_per_s = kInfinite;
      for (const int number : routes_[flow]) {
        const FabricLink& link = fabric.links()[static_cast<size_t>(number)];
        cable_gb_per_s = std::min(cable_gb_per_s, link.gbit_per_s / kGbitPerGb);
        LinkUse& use = uses_[number];
        use.left_gb_per_s = link.cables * link.gbit_per_s / kGbitPerGb;
        use.flows.push_back(static_cast<int>(flow));
        ++use.unsettled;
      }
      limits_.push_back({cable_gb_per_s, static_cast<int>(flow)});
    }
    std::sort(limits_.begin(), limits_.end());
  }

  std::vector<double> run() {
    using Entry = std::pair<double, int>;  // level, link
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    for (const auto& [number, use] : uses_) {
      queue.emplace(use.level(), number);
    }
    size_t next_limit = 0;
    while (!queue.empty()) {
      const auto [level, number] = queue.top();
      queue.pop();
      LinkUse& use = uses_.at(number);
      if (use.unsettled == 0) {
        continue;
      }
      if (use.level() > level) {  // its flows have been limited elsewhere since
        queue.emplace(use.level(), number);
        continue;
      }
      // No flow exceeds its narrowest cable.
      const size_t before = next_limit;
      for (; next_limit < limits_.size() && limits_[next_limit].first <= level; ++next_limit) {
        settle(limits_[next_limit].second, limits_[next_limit].first);
      }
      if (next_limit != before) {  // they may have left more of this link to its other flows
        if (use.unsettled > 0) {
          queue.emplace(use.level(), number);
        }
        continue;
      }
      for (const int flow : use.flows) {
        settle(flow, level);
      }
    }
    return std::move(rates_);
  }

 private:
  void settle(int flow, double rate) {
    double& own = rates_[static_cast<size_t>(flow)];
    if (own >= 0) {
      return;
    }
    own = rate;
    for (const int number : routes_[static_cast<size_t>(flow)]) {
      LinkUse& use = uses_.at(number);
      use.left_gb_per_s -= rate;
      --use.unsettled;
    }
  }

  std::vector<double> rates_;  // -1: not settled
  std::vector<std::vector<int>> routes_;
  std::unordered_map<int, LinkUse> uses_;
  std::vector<std::pair<double, int>> limits_;  // GB/s of the narrowest cable, flow; rising
};

}  // namespace

std::vector<int> count_flows(const Fabric& fabric, std::span<const FabricFlow> flows) {
  std::vector<int> counts(fabric.links().size());
  for (const FabricFlow& flow : flows) {
    if (const auto route = fabric.route(flow.from, flow.to)) {
      for (const int link : *route) {
        ++counts[static_cast<size_t>(link)];
      }
    }
  }
  return counts;
}

std::vector<double> share_links(const Fabric& fabric, std::span<const FabricFlow> flows) {
  return Filling(fabric, flows).run();
}

double latency_us(const Fabric& fabric, std::span<const int> route) {
  double sum = 0;
  for (const int link : route) {
    sum += fabric.links()[static_cast<size_t>(link)].latency_us;
  }
  return sum;
}

}  // namespace plexus
