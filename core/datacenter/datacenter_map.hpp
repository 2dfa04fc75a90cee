// SPDX-License-Identifier: Apache-2.0
// The map of datacenters, made from all nodes' locations and from what their networks report.
//
//   PLEXUS_TRY(map, make_datacenter_map(nodes));
//   const int first = map.of_node[0];  // the datacenter of node 0
//   return map.above[static_cast<size_t>(first)];
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/datacenter/location.hpp"

namespace plexus {

/// What others know of a node (ranks that need no network between them).
struct DatacenterNode {
  std::string host;  // for error messages
  Location location;
  std::vector<FabricAnswer> answers;  // from its own ids to those of all nodes
};

struct DatacenterMap {
  std::vector<std::string> names;     // by datacenter, in the order of `visits`; "" where no fabric
                                      // file names it
  std::vector<int> of_node;           // by node
  std::vector<DatacenterPath> paths;  // [datacenters * datacenters]; the diagonal is connected
  /// A closed walk of least cost through all datacenters: the order in which a ring visits them.
  /// Each is visited once if such a walk exists; otherwise the walk returns along the same links
  /// and has 2 * (datacenters - 1) visits.
  std::vector<int> visits;
  /// [datacenter]: the one above it in trees, -1 at their root (find_tree).
  std::vector<int> above;

  [[nodiscard]] size_t count() const { return names.size(); }
  [[nodiscard]] const DatacenterPath& path(size_t from, size_t to) const {
    return paths[from * count() + to];
  }
  /// Whether every datacenter reaches every other one directly.
  [[nodiscard]] bool meshed() const;
};

/// The fabric ids of all nodes, distinct and ascending.
std::vector<uint64_t> distinct_fabric_ids(std::span<const DatacenterNode> nodes);

/// One datacenter when no node states anything. kInvalidUsage: two nodes contradict each other (the
/// error names both), or a datacenter cannot be reached.
Result<DatacenterMap> make_datacenter_map(std::span<const DatacenterNode> nodes);

/// Computes `DatacenterMap::visits`; kInvalidUsage: no such walk exists.
Result<std::vector<int>> find_walk(std::span<const DatacenterPath> paths,
                                   std::span<const std::string> names);

/// Computes `DatacenterMap::above`: a minimum spanning tree of the paths' cost, of which the root
/// is the datacenter nearest to the farthest one. Links must connect all of them.
std::vector<int> find_tree(std::span<const DatacenterPath> paths, int count);
/// Where equal links join all of them.
std::vector<int> find_tree(int count);

}  // namespace plexus
