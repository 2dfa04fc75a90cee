// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/topo/fabric.hpp"

#include <algorithm>
#include <numeric>

#include "core/base/text.hpp"
#include "tools/cli/flags.hpp"

namespace plexus {

Result<FabricPort> parse_port(std::string_view text, const Fabric& fabric) {
  const size_t colon = std::min(text.find(':'), text.size());
  FabricPort port;
  PLEXUS_TRY(node, parse_int(text.substr(0, colon), {0, fabric.nodes() - 1}));
  port.node = static_cast<int>(node);
  if (colon < text.size()) {
    PLEXUS_TRY(rail, parse_int(text.substr(colon + 1), {0, fabric.rails() - 1}));
    port.rail = static_cast<int>(rail);
  }
  return port;
}

std::string format_fabric(const Fabric& fabric) {
  std::vector<int> nodes(static_cast<size_t>(fabric.datacenters()));
  for (int node = 0; node < fabric.nodes(); ++node) {
    ++nodes[static_cast<size_t>(fabric.datacenter_of(node))];
  }
  std::string text;
  int first = 0;
  for (int datacenter = 0; datacenter < fabric.datacenters(); ++datacenter) {
    const int count = nodes[static_cast<size_t>(datacenter)];
    text += fmt::format("datacenter {}: nodes {} to {}\n", fabric.datacenter_name(datacenter),
                        first, first + count - 1);
    first += count;
  }
  return text + fmt::format("{} with {} each, {} vertices, {}\n",
                            counted(static_cast<size_t>(fabric.nodes()), "node"),
                            counted(static_cast<size_t>(fabric.rails()), "NIC"), fabric.vertices(),
                            counted(fabric.links().size(), "link"));
}

std::string format_route(const Fabric& fabric, FabricPort from, FabricPort to) {
  const auto route = fabric.route(from, to);
  if (!route) {
    return "no route: no link connects the datacenters\n";
  }
  const FabricFlow alone[] = {{.from = from, .to = to}};
  std::string text =
      fmt::format("{}, {:.6g} us, {:.6g} GB/s alone\n", counted(route->size(), "link"),
                  latency_us(fabric, *route), share_links(fabric, alone).front());
  for (const int number : *route) {
    const FabricLink& link = fabric.links()[static_cast<size_t>(number)];
    text += fmt::format("  {} > {}: {} x {:.6g} Gbit/s\n", fabric.vertex_name(link.from),
                        fabric.vertex_name(link.to), link.cables, link.gbit_per_s);
  }
  return text;
}

std::string format_shift(const Fabric& fabric, int shift) {
  std::vector<FabricFlow> flows;
  for (int node = 0; node < fabric.nodes(); ++node) {
    const int to = (node + shift) % fabric.nodes();
    for (int rail = 0; rail < fabric.rails() && to != node; ++rail) {
      flows.push_back({.from = {.node = node, .rail = rail}, .to = {.node = to, .rail = rail}});
    }
  }
  if (flows.empty()) {
    return fmt::format("shift {}: every node sends to itself\n", shift);
  }
  const std::vector<double> rates = share_links(fabric, flows);
  const std::vector<int> counts = count_flows(fabric, flows);
  const auto busiest = std::max_element(counts.begin(), counts.end());
  const FabricLink& link = fabric.links()[static_cast<size_t>(busiest - counts.begin())];
  return fmt::format(
      "shift {}: {} flows, slowest {:.6g} GB/s, fastest {:.6g} GB/s, together {:.6g} GB/s\n"
      "  most flows on one link: {} ({} > {})\n",
      shift, flows.size(), *std::min_element(rates.begin(), rates.end()),
      *std::max_element(rates.begin(), rates.end()),
      std::accumulate(rates.begin(), rates.end(), 0.0), *busiest, fabric.vertex_name(link.from),
      fabric.vertex_name(link.to));
}

}  // namespace plexus
