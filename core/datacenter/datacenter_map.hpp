// SPDX-License-Identifier: Apache-2.0
// The map of datacenters, made of all nodes' locations and of what their networks answer.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/datacenter/location.hpp"

namespace plexus {

/// A node (ranks that need no network between them), as others know it.
struct DatacenterNode {
  std::string host;  // for messages
  Location location;
  std::vector<FabricAnswer> answers;  // its own ids to those of all
};

struct DatacenterMap {
  std::vector<std::string>
      names;                 // by datacenter, in the order of `visits`; "" unless a file names it
  std::vector<int> of_node;  // by node
  std::vector<DatacenterPath> paths;  // [datacenters * datacenters]; the diagonal is connected
  /// A closed walk of least cost through all datacenters: what a ring visits, one after the other.
  /// Each once where there is such a way, else back along the same links: 2 * (datacenters - 1)
  /// visits.
  std::vector<int> visits;

  [[nodiscard]] size_t count() const { return names.size(); }
  [[nodiscard]] const DatacenterPath& path(size_t from, size_t to) const {
    return paths[from * count() + to];
  }
  /// Does every datacenter reach every other directly?
  [[nodiscard]] bool meshed() const;
};

/// Ids that two nodes have and that differ: then the networks are to be asked.
std::vector<uint64_t> distinct_fabric_ids(std::span<const DatacenterNode> nodes);

/// One datacenter when nobody says anything. kInvalidUsage: two nodes contradict each other (names
/// both), or some datacenter cannot be reached.
Result<DatacenterMap> make_datacenter_map(std::span<const DatacenterNode> nodes);

/// The walk of `DatacenterMap::visits`; kInvalidUsage: there is none.
Result<std::vector<int>> find_walk(std::span<const DatacenterPath> paths,
                                   std::span<const std::string> names);

}  // namespace plexus
