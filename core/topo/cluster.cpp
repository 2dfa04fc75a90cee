// SPDX-License-Identifier: Apache-2.0
#include "core/topo/cluster.hpp"

#include "core/topo/graph_file.hpp"
#include "core/topo/paths.hpp"

namespace plexus {

Result<ClusterChannels> plan_cluster(const XmlElement& machine, const ClusterRequest& request) {
  PLEXUS_TRY(system, build_system(machine));
  const int ranks = system.count(NodeType::kGpu);
  if (ranks == 0) {
    return fail(
        Code::kInvalidUsage,
        "the description has no ranks: add a rank attribute to a <gpu>, or a <host> to a <cpu>");
  }
  ClusterChannels cluster;
  cluster.parts = split_by_reach(system, request.options, request.machines > 1);
  cluster.warnings = nvlink_warnings(cluster.parts);
  for (const System& part : cluster.parts) {
    GivenChannels given;
    if (!request.graphs.empty()) {
      PLEXUS_TRY(parsed, parse_graphs(request.graphs, part, request.options));
      given = std::move(parsed);
    }
    cluster.found.push_back(search_node(part, request.options, given));
  }
  const std::vector<int>& datacenter_of = request.datacenters.of_node;
  if (!datacenter_of.empty() && static_cast<int>(datacenter_of.size()) != request.machines) {
    return fail(Code::kInvalidArgument, "datacenters are given for {} nodes, but there are {}",
                datacenter_of.size(), request.machines);
  }
  JoinOptions join{.limits = request.limits, .datacenters = request.datacenters};
  join.datacenters.of_node.clear();
  std::vector<ClusterNode> nodes;
  for (int number = 0; number < request.machines; ++number) {
    for (size_t part = 0; part < cluster.parts.size(); ++part) {
      nodes.push_back({.found = &cluster.found[part],
                       .rank_offset = number * ranks,
                       .sm_min = cluster.parts[part].sm_min()});
      if (!datacenter_of.empty()) {
        join.datacenters.of_node.push_back(datacenter_of[static_cast<size_t>(number)]);
      }
    }
  }
  PLEXUS_TRY(joined, join_nodes(nodes, join));
  cluster.joined = std::move(joined);
  return cluster;
}

}  // namespace plexus
