// SPDX-License-Identifier: Apache-2.0
// From one machine's description to the channels of a communicator over any number of such
// machines: graph, paths, parts, search and join, in this order. Used by `plexus topo search` and
// the tests.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/topo/join.hpp"
#include "core/topo/options.hpp"
#include "core/topo/search.hpp"
#include "core/topo/system.hpp"
#include "core/topo/xml_tree.hpp"

namespace plexus {

/// Equal machines of a cluster, whose description has the ranks 0..n-1.
struct ClusterMachines {
  XmlElement machine;
  int count = 1;
  std::string from = {};  // for messages: the file; empty: none
};

struct ClusterRequest {
  int machines = 1;  // of the only kind
  ChannelLimits limits;
  Datacenters datacenters;  // by machine
  TopoOptions options;
  std::string graphs;       // text of a graph file; empty: everything is searched
  std::string graphs_from;  // for messages
};

struct ClusterChannels {
  std::vector<System> parts;        // of one machine of each kind; several when only the network
                                    // connects them
  std::vector<size_t> kinds;        // by part: the index of its kind
  std::vector<NodeChannels> found;  // by part
  int nodes = 0;                    // parts of all machines
  std::vector<std::string> warnings;
  JoinedChannels joined;
};

/// Ranks are numbered machine after machine, first all of the first kind.
Result<ClusterChannels> plan_cluster(std::span<const ClusterMachines> kinds,
                                     const ClusterRequest& request);
/// The same for `request.machines` equal machines.
Result<ClusterChannels> plan_cluster(const XmlElement& machine, const ClusterRequest& request);

}  // namespace plexus
