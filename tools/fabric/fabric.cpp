// SPDX-License-Identifier: Apache-2.0
#include "tools/fabric/fabric.hpp"

#include <algorithm>
#include <limits>

#include "tools/fabric/network.hpp"

namespace plexus {
namespace {

constexpr int kShift = 32;

uint64_t key_of(int from, int to) {
  return static_cast<uint64_t>(static_cast<uint32_t>(from)) << kShift | static_cast<uint32_t>(to);
}

}  // namespace

Fabric::Fabric(Fabric&&) noexcept = default;
Fabric& Fabric::operator=(Fabric&&) noexcept = default;
Fabric::~Fabric() = default;

int Fabric::rails() const {
  int fewest = datacenters_.empty() ? 0 : std::numeric_limits<int>::max();
  for (const Datacenter& datacenter : datacenters_) {
    fewest = std::min(fewest, datacenter.network->rails());
  }
  return fewest;
}

const Fabric::Datacenter& Fabric::find_datacenter(int node) const {
  const auto next = std::upper_bound(
      datacenters_.begin(), datacenters_.end(), node,
      [](int value, const Datacenter& datacenter) { return value < datacenter.first_node; });
  return *std::prev(next);
}

int Fabric::datacenter_of(int node) const {
  return static_cast<int>(&find_datacenter(node) - datacenters_.data());
}

const std::string& Fabric::datacenter_name(int datacenter) const {
  return datacenters_[static_cast<size_t>(datacenter)].name;
}

std::string Fabric::vertex_name(int vertex) const {
  const auto next = std::upper_bound(
      datacenters_.begin(), datacenters_.end(), vertex,
      [](int value, const Datacenter& datacenter) { return value < datacenter.first_vertex; });
  const Datacenter& datacenter = *std::prev(next);
  const int local = vertex - datacenter.first_vertex;
  const int rails = datacenter.network->rails();
  if (vertex == datacenter.border) {
    return datacenter.name + " border";
  }
  if (local >= datacenter.network->ports()) {
    return fmt::format("{} switch {}", datacenter.name, local - datacenter.network->ports());
  }
  const int node = datacenter.first_node + local / rails;
  return rails == 1 ? fmt::format("node {}", node)
                    : fmt::format("node {} rail {}", node, local % rails);
}

void Fabric::add_link(const FabricLink& link) {
  const auto [at, is_new] =
      link_of_.try_emplace(key_of(link.from, link.to), static_cast<int>(links_.size()));
  if (is_new) {
    links_.push_back(link);
  } else {  // two lines for one pair: additional cables with the bandwidth of the first ones
    links_[static_cast<size_t>(at->second)].cables += link.cables;
  }
}

void Fabric::add_datacenter(std::string name, std::unique_ptr<const FabricNetwork> network) {
  Datacenter datacenter;
  datacenter.name = std::move(name);
  datacenter.first_node = nodes_;
  datacenter.first_vertex = vertices_;
  datacenter.border = vertices_ + network->vertices();
  const int first = vertices_;
  network->wire([&](int a, int b, int cables) {
    FabricLink link{.from = first + a,
                    .to = first + b,
                    .cables = cables,
                    .gbit_per_s = network->cable.gbit_per_s,
                    .latency_us = network->cable.latency_us};
    add_link(link);
    std::swap(link.from, link.to);
    add_link(link);
  });
  // Only the links between datacenters limit, not the border.
  for (const int inside : network->border()) {
    constexpr double kAny = std::numeric_limits<double>::infinity();
    add_link({.from = first + inside, .to = datacenter.border, .gbit_per_s = kAny});
    add_link({.from = datacenter.border, .to = first + inside, .gbit_per_s = kAny});
  }
  nodes_ += network->nodes();
  vertices_ = datacenter.border + 1;
  datacenter.network = std::move(network);
  datacenters_.push_back(std::move(datacenter));
  neighbours_.emplace_back();
}

void Fabric::join_datacenters(int a, int b, const FabricLink& properties) {
  FabricLink link = properties;
  link.from = datacenters_[static_cast<size_t>(a)].border;
  link.to = datacenters_[static_cast<size_t>(b)].border;
  add_link(link);
  std::swap(link.from, link.to);
  add_link(link);
  neighbours_[static_cast<size_t>(a)].push_back(b);
  neighbours_[static_cast<size_t>(b)].push_back(a);
}

/// The path with the fewest links between datacenters (the first one of equals); empty: none.
std::vector<int> Fabric::datacenters_between(int from, int to) const {
  std::vector<int> came_from(datacenters_.size(), -1);
  std::vector<int> queue = {from};
  came_from[static_cast<size_t>(from)] = from;
  for (size_t next = 0; next < queue.size(); ++next) {
    for (const int neighbour : neighbours_[static_cast<size_t>(queue[next])]) {
      if (came_from[static_cast<size_t>(neighbour)] < 0) {
        came_from[static_cast<size_t>(neighbour)] = queue[next];
        queue.push_back(neighbour);
      }
    }
  }
  std::vector<int> path;
  if (came_from[static_cast<size_t>(to)] >= 0) {
    for (int at = to; at != from; at = came_from[static_cast<size_t>(at)]) {
      path.push_back(at);
    }
    path.push_back(from);
    std::reverse(path.begin(), path.end());
  }
  return path;
}

std::optional<std::vector<int>> Fabric::route(FabricPort from, FabricPort to) const {
  const int source = datacenter_of(from.node);
  const int target = datacenter_of(to.node);
  const Datacenter& here = datacenters_[static_cast<size_t>(source)];
  const Datacenter& there = datacenters_[static_cast<size_t>(target)];
  const int first = (from.node - here.first_node) * here.network->rails() + from.rail;
  const int last = (to.node - there.first_node) * there.network->rails() + to.rail;
  std::vector<int> vertices;
  if (source == target) {
    here.network->find_path(first, last, vertices);
    for (int& vertex : vertices) {
      vertex += here.first_vertex;
    }
  } else {
    const std::vector<int> path = datacenters_between(source, target);
    if (path.empty()) {
      return std::nullopt;
    }
    here.network->find_path_out(first, last, vertices);
    for (int& vertex : vertices) {
      vertex += here.first_vertex;
    }
    for (const int datacenter : path) {
      vertices.push_back(datacenters_[static_cast<size_t>(datacenter)].border);
    }
    std::vector<int> back;
    there.network->find_path_out(last, first, back);
    for (auto at = back.rbegin(); at != back.rend(); ++at) {
      vertices.push_back(there.first_vertex + *at);
    }
  }
  std::vector<int> links;
  for (size_t i = 1; i < vertices.size(); ++i) {
    links.push_back(link_of_.at(key_of(vertices[i - 1], vertices[i])));
  }
  return links;
}

}  // namespace plexus
