// SPDX-License-Identifier: Apache-2.0
// The map of data centres, made of all nodes' claims and of what their networks answer.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/centres/claim.hpp"

namespace plexus {

/// A node (ranks that need no network between them), as others know it.
struct CentreNode {
  std::string host;  // for messages
  CentreClaim claim;
  std::vector<FabricAnswer> answers;  // its own ids to those of all
};

struct CentreMap {
  std::vector<std::string> names;  // by centre, in the order of `visits`; "" unless a file names it
  std::vector<int> of_node;        // by node
  std::vector<CentrePath> paths;   // [centres * centres]; the diagonal is connected
  /// A closed walk of least cost through all centres: what a ring visits, one after the other. Each
  /// once where there is such a way, else back along the same links: 2 * (centres - 1) visits.
  std::vector<int> visits;

  [[nodiscard]] size_t count() const { return names.size(); }
  [[nodiscard]] const CentrePath& path(size_t from, size_t to) const {
    return paths[from * count() + to];
  }
  /// Does every centre reach every other directly?
  [[nodiscard]] bool meshed() const;
};

/// Ids that two nodes have and that differ: then the networks are to be asked.
std::vector<uint64_t> distinct_fabric_ids(std::span<const CentreNode> nodes);

/// One centre when nobody says anything. kInvalidUsage: two nodes contradict each other (names
/// both), or some centre cannot be reached.
Result<CentreMap> make_centre_map(std::span<const CentreNode> nodes);

/// The walk of `CentreMap::visits`; kInvalidUsage: there is none.
Result<std::vector<int>> find_walk(std::span<const CentrePath> paths,
                                   std::span<const std::string> names);

}  // namespace plexus
