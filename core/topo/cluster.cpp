// SPDX-License-Identifier: Apache-2.0
#include "core/topo/cluster.hpp"

#include "core/topo/graph_file.hpp"
#include "core/topo/paths.hpp"

namespace plexus {
namespace {

int count_machines(std::span<const ClusterMachines> kinds) {
  int count = 0;
  for (const ClusterMachines& kind : kinds) {
    count += kind.count;
  }
  return count;
}

/// Splits one machine of a kind and searches its channels. Returns the number of its ranks.
Result<int> search_kind(const ClusterMachines& kind,
                        size_t number,
                        bool inter,
                        const ClusterRequest& request,
                        ClusterChannels* cluster) {
  auto built = build_system(kind.machine);
  if (!built) {
    return in_file(kind.from, std::move(built).error());
  }
  const System& system = built.value();
  if (system.count(NodeType::kGpu) == 0) {
    return in_file(kind.from,
                   fail(Code::kInvalidUsage,
                        "the description has no ranks: add a rank attribute to a <gpu>, "
                        "or a <host> to a <cpu>; of a file without GPUs say what they are "
                        "(plexus topo search --gpus)"));
  }
  const std::vector<System> parts = split_by_reach(system, request.options, inter);
  for (std::string& warning : nvlink_warnings(parts)) {
    cluster->warnings.push_back(std::move(warning));
  }
  for (const System& part : parts) {
    GivenChannels given;
    if (!request.graphs.empty()) {
      auto parsed = parse_graphs(request.graphs, part, request.options);
      if (!parsed) {
        return in_file(request.graphs_from, std::move(parsed).error());
      }
      given = std::move(parsed).value();
    }
    cluster->found.push_back(search_node(part, request.options, given));
    cluster->kinds.push_back(number);
    cluster->parts.push_back(part);
  }
  return system.count(NodeType::kGpu);
}

}  // namespace

Result<ClusterChannels> plan_cluster(std::span<const ClusterMachines> kinds,
                                     const ClusterRequest& request) {
  const int machines = count_machines(kinds);
  const std::vector<int>& datacenter_of = request.datacenters.of_node;
  if (!datacenter_of.empty() && static_cast<int>(datacenter_of.size()) != machines) {
    return fail(Code::kInvalidArgument, "datacenters are given for {} nodes, but there are {}",
                datacenter_of.size(), machines);
  }
  ClusterChannels cluster;
  std::vector<int> ranks;  // by kind
  for (const ClusterMachines& kind : kinds) {
    PLEXUS_TRY(count, search_kind(kind, ranks.size(), machines > 1, request, &cluster));
    ranks.push_back(count);
  }
  JoinOptions join{.limits = request.limits, .datacenters = request.datacenters};
  join.datacenters.of_node.clear();
  std::vector<ClusterNode> nodes;
  size_t machine = 0;
  int rank_offset = 0;
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    for (int number = 0; number < kinds[kind].count; ++number, ++machine) {
      for (size_t part = 0; part < cluster.parts.size(); ++part) {
        if (cluster.kinds[part] != kind) {
          continue;
        }
        nodes.push_back({.found = &cluster.found[part],
                         .rank_offset = rank_offset,
                         .sm_min = cluster.parts[part].sm_min()});
        if (!datacenter_of.empty()) {
          join.datacenters.of_node.push_back(datacenter_of[machine]);
        }
      }
      rank_offset += ranks[kind];
    }
  }
  PLEXUS_TRY(joined, join_nodes(nodes, join));
  cluster.joined = std::move(joined);
  cluster.nodes = static_cast<int>(nodes.size());
  return cluster;
}

Result<ClusterChannels> plan_cluster(const XmlElement& machine, const ClusterRequest& request) {
  return plan_cluster(std::vector{ClusterMachines{.machine = machine, .count = request.machines}},
                      request);
}

}  // namespace plexus
