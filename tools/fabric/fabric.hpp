// SPDX-License-Identifier: Apache-2.0
// A model of the network between nodes for tools and cost estimates: networks of known shapes (fat
// tree, rail-optimised, dragonfly, dragonfly+, torus, hypercube), one per datacenter, and the links
// between datacenters. A short text, the fabric model (docs/topology.md; not the fabric file of
// communicators, PLEXUS_FABRIC_FILE), determines all links, the route between every two NICs, and
// the bandwidth of concurrent flows. Values and pure functions: equal texts give equal routes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/result.hpp"

namespace plexus {

/// One direction of the cables between two vertices. A flow uses one cable.
struct FabricLink {
  int from = 0;
  int to = 0;
  int cables = 1;
  double gbit_per_s = 0;  // per cable
  double latency_us = 0;  // including the switch behind it
};

/// A NIC: rail `rail` of node `node`.
struct FabricPort {
  int node = 0;
  int rail = 0;
  friend bool operator==(const FabricPort&, const FabricPort&) = default;
};

struct FabricFlow {
  FabricPort from;
  FabricPort to;
};

class FabricNetwork;

class Fabric {
 public:
  /// Checks every line; an error names the line.
  static Result<Fabric> parse(std::string_view text);
  Fabric(Fabric&&) noexcept;
  Fabric& operator=(Fabric&&) noexcept;
  ~Fabric();

  [[nodiscard]] int nodes() const { return nodes_; }
  /// Number of NICs per node, the lowest of all datacenters.
  [[nodiscard]] int rails() const;
  [[nodiscard]] int datacenters() const { return static_cast<int>(datacenters_.size()); }
  [[nodiscard]] int datacenter_of(int node) const;
  [[nodiscard]] const std::string& datacenter_name(int datacenter) const;
  [[nodiscard]] int vertices() const { return vertices_; }
  /// "node 7 rail 1", "east switch 12", "east border"
  [[nodiscard]] std::string vertex_name(int vertex) const;
  [[nodiscard]] std::span<const FabricLink> links() const { return links_; }

  /// Indexes of the links in order; empty: a port to itself. nullopt: their datacenters are not
  /// connected. The ports must exist.
  [[nodiscard]] std::optional<std::vector<int>> route(FabricPort from, FabricPort to) const;

 private:
  friend class FabricParser;
  struct Datacenter {
    std::string name;
    std::unique_ptr<const FabricNetwork> network;
    int first_node = 0;
    int first_vertex = 0;
    int border = 0;  // vertex
  };
  Fabric() = default;
  void add_datacenter(std::string name, std::unique_ptr<const FabricNetwork> network);
  void add_link(const FabricLink& link);
  void join_datacenters(int a, int b, const FabricLink& properties);
  [[nodiscard]] const Datacenter& find_datacenter(int node) const;
  [[nodiscard]] std::vector<int> datacenters_between(int from, int to) const;

  std::vector<Datacenter> datacenters_;
  std::vector<FabricLink> links_;
  std::unordered_map<uint64_t, int> link_of_;  // (from, to) -> index
  std::vector<std::vector<int>> neighbours_;   // neighbours by datacenter
  int nodes_ = 0;
  int vertices_ = 0;
};

/// Number of flows on each link. Flows without a route are not counted.
std::vector<int> count_flows(const Fabric& fabric, std::span<const FabricFlow> flows);

/// GB/s of each flow if all run at the same time and links are shared fairly (max-min): 0 without a
/// route, infinity from a port to itself.
std::vector<double> share_links(const Fabric& fabric, std::span<const FabricFlow> flows);

/// Microseconds along the route.
double latency_us(const Fabric& fabric, std::span<const int> route);

}  // namespace plexus
