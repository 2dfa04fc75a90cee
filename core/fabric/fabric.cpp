// SPDX-License-Identifier: Apache-2.0
#include "core/fabric/fabric.hpp"

#include <algorithm>
#include <limits>

#include "core/fabric/network.hpp"

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
  int fewest = centres_.empty() ? 0 : std::numeric_limits<int>::max();
  for (const Centre& centre : centres_) {
    fewest = std::min(fewest, centre.network->rails());
  }
  return fewest;
}

const Fabric::Centre& Fabric::centre_of(int node) const {
  const auto next =
      std::upper_bound(centres_.begin(), centres_.end(), node,
                       [](int value, const Centre& centre) { return value < centre.first_node; });
  return *std::prev(next);
}

int Fabric::data_centre_of(int node) const {
  return static_cast<int>(&centre_of(node) - centres_.data());
}

const std::string& Fabric::data_centre_name(int centre) const {
  return centres_[static_cast<size_t>(centre)].name;
}

std::string Fabric::vertex_name(int vertex) const {
  const auto next =
      std::upper_bound(centres_.begin(), centres_.end(), vertex,
                       [](int value, const Centre& centre) { return value < centre.first_vertex; });
  const Centre& centre = *std::prev(next);
  const int local = vertex - centre.first_vertex;
  const int rails = centre.network->rails();
  if (vertex == centre.border) {
    return centre.name + " border";
  }
  if (local >= centre.network->ports()) {
    return fmt::format("{} switch {}", centre.name, local - centre.network->ports());
  }
  const int node = centre.first_node + local / rails;
  return rails == 1 ? fmt::format("node {}", node)
                    : fmt::format("node {} rail {}", node, local % rails);
}

void Fabric::add_link(const FabricLink& link) {
  const auto [at, is_new] =
      link_of_.try_emplace(key_of(link.from, link.to), static_cast<int>(links_.size()));
  if (is_new) {
    links_.push_back(link);
  } else {  // two lines for one pair: more cables, as wide as the first ones
    links_[static_cast<size_t>(at->second)].cables += link.cables;
  }
}

void Fabric::add_centre(std::string name, std::unique_ptr<const FabricNetwork> network) {
  Centre centre;
  centre.name = std::move(name);
  centre.first_node = nodes_;
  centre.first_vertex = vertices_;
  centre.border = vertices_ + network->vertices();
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
  // The border is not what limits: the links between data centres are.
  for (const int inside : network->border()) {
    constexpr double kAny = std::numeric_limits<double>::infinity();
    add_link({.from = first + inside, .to = centre.border, .gbit_per_s = kAny});
    add_link({.from = centre.border, .to = first + inside, .gbit_per_s = kAny});
  }
  nodes_ += network->nodes();
  vertices_ = centre.border + 1;
  centre.network = std::move(network);
  centres_.push_back(std::move(centre));
  neighbours_.emplace_back();
}

void Fabric::join_centres(int a, int b, const FabricLink& properties) {
  FabricLink link = properties;
  link.from = centres_[static_cast<size_t>(a)].border;
  link.to = centres_[static_cast<size_t>(b)].border;
  add_link(link);
  std::swap(link.from, link.to);
  add_link(link);
  neighbours_[static_cast<size_t>(a)].push_back(b);
  neighbours_[static_cast<size_t>(b)].push_back(a);
}

/// The way with the fewest links between data centres, the first of equals; empty: none.
std::vector<int> Fabric::centres_between(int from, int to) const {
  std::vector<int> came_from(centres_.size(), -1);
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
  std::vector<int> way;
  if (came_from[static_cast<size_t>(to)] >= 0) {
    for (int at = to; at != from; at = came_from[static_cast<size_t>(at)]) {
      way.push_back(at);
    }
    way.push_back(from);
    std::reverse(way.begin(), way.end());
  }
  return way;
}

std::optional<std::vector<int>> Fabric::route(FabricPort from, FabricPort to) const {
  const int source = data_centre_of(from.node);
  const int target = data_centre_of(to.node);
  const Centre& here = centres_[static_cast<size_t>(source)];
  const Centre& there = centres_[static_cast<size_t>(target)];
  const int first = (from.node - here.first_node) * here.network->rails() + from.rail;
  const int last = (to.node - there.first_node) * there.network->rails() + to.rail;
  std::vector<int> vertices;
  if (source == target) {
    here.network->find_path(first, last, vertices);
    for (int& vertex : vertices) {
      vertex += here.first_vertex;
    }
  } else {
    const std::vector<int> way = centres_between(source, target);
    if (way.empty()) {
      return std::nullopt;
    }
    here.network->find_way_out(first, last, vertices);
    for (int& vertex : vertices) {
      vertex += here.first_vertex;
    }
    for (const int centre : way) {
      vertices.push_back(centres_[static_cast<size_t>(centre)].border);
    }
    std::vector<int> back;
    there.network->find_way_out(last, first, back);
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
