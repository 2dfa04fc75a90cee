// SPDX-License-Identifier: Apache-2.0
#include "core/topo/system_links.hpp"

#include <algorithm>

namespace plexus {
namespace {

Node& node_at(System& system, int index) { return system.nodes[static_cast<size_t>(index)]; }

void put_uplink_last(System& system, int index, int up) {
  std::vector<Link>& links = node_at(system, index).links;
  std::stable_partition(links.begin(), links.end(),
                        [up](const Link& link) { return link.to != up; });
  for (const Link& link : links) {
    if (link.type == LinkType::kPci && link.to != up) {
      put_uplink_last(system, link.to, index);
    }
  }
}

}  // namespace

int add_node(System& system, NodeType type, uint64_t id, int host) {
  const int index = static_cast<int>(system.nodes.size());
  Node node;
  node.type = type;
  node.id = id;
  node.host = host;
  node.ordinal = system.count(type);
  system.nodes.push_back(std::move(node));
  system.of_type.at(static_cast<size_t>(type)).push_back(index);
  return index;
}

void connect(System& system, int from, int to, LinkType type, float gb_per_s) {
  std::vector<Link>& links = node_at(system, from).links;
  auto link = std::find_if(links.begin(), links.end(),
                           [&](const Link& known) { return known.to == to && known.type == type; });
  if (link == links.end()) {
    links.push_back({.type = type, .gb_per_s = 0, .to = to});
    link = links.end() - 1;
  }
  link->gb_per_s += gb_per_s;
  const Link widened = *link;
  const auto wider = std::find_if(
      links.begin(), link, [&](const Link& known) { return known.gb_per_s < widened.gb_per_s; });
  std::rotate(wider, link, link + 1);
}

void connect_both(System& system, int left, int right, LinkType type, float gb_per_s) {
  connect(system, left, right, type, gb_per_s);
  connect(system, right, left, type, gb_per_s);
}

void put_uplinks_last(System& system) {
  for (const int cpu : system.of_type.at(static_cast<size_t>(NodeType::kCpu))) {
    const std::vector<Link> links = node_at(system, cpu).links;
    for (const Link& link : links) {
      if (link.type == LinkType::kPci) {
        put_uplink_last(system, link.to, cpu);
      }
    }
  }
}

System with_nodes(const System& system, const std::vector<bool>& keep) {
  System kept;
  kept.name = system.name;
  kept.inter = system.inter;
  std::vector<int> moved(system.nodes.size(), -1);
  for (size_t i = 0; i < system.nodes.size(); ++i) {
    if (keep[i]) {
      const Node& node = system.nodes[i];
      moved[i] = add_node(kept, node.type, node.id, node.host);
      Node& copy = node_at(kept, moved[i]);
      copy.pci_ids = node.pci_ids;
      copy.rank = node.rank;
      copy.net = node.net;
      copy.cpu = node.cpu;
    }
  }
  for (size_t i = 0; i < system.nodes.size(); ++i) {
    for (const Link& link : system.nodes[i].links) {
      if (keep[i] && keep[static_cast<size_t>(link.to)]) {
        node_at(kept, moved[i])
            .links.push_back({.type = link.type,
                              .gb_per_s = link.gb_per_s,
                              .to = moved[static_cast<size_t>(link.to)]});
      }
    }
  }
  return kept;
}

System without_ranks(const System& system, const std::vector<bool>& keep) {
  std::vector<bool> kept(system.nodes.size(), true);
  for (int ordinal = 0; ordinal < system.count(NodeType::kGpu); ++ordinal) {
    kept[static_cast<size_t>(system.index_of(NodeType::kGpu, ordinal))] =
        keep[static_cast<size_t>(ordinal)];
  }
  return with_nodes(system, kept);
}

}  // namespace plexus
