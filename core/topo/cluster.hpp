// SPDX-License-Identifier: Apache-2.0
// From one machine's description to the channels of a communicator over any number of such
// machines: graph, paths, parts, search and join, in this order. Used by `plexus topo search` and
// the tests.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/topo/join.hpp"
#include "core/topo/options.hpp"
#include "core/topo/search.hpp"
#include "core/topo/system.hpp"
#include "core/topo/xml_tree.hpp"

namespace plexus {

struct ClusterRequest {
  int machines = 1;
  ChannelLimits limits;
  Datacenters datacenters;  // by machine
  TopoOptions options;
  std::string graphs;  // text of a graph file; empty: everything is searched
};

struct ClusterChannels {
  std::vector<System> parts;        // one machine's; several when only the network connects them
  std::vector<NodeChannels> found;  // by part
  std::vector<std::string> warnings;
  JoinedChannels joined;
};

/// Rank = machine * (ranks of one machine) + rank in the description, whose ranks must be 0..n-1.
Result<ClusterChannels> plan_cluster(const XmlElement& machine, const ClusterRequest& request);

}  // namespace plexus
