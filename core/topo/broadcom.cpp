// SPDX-License-Identifier: Apache-2.0
#include "core/topo/broadcom.hpp"

#include <algorithm>
#include <vector>

#include "core/topo/system_links.hpp"

namespace plexus {
namespace {

constexpr uint64_t kModelMask = ~uint64_t{0xfff};
constexpr uint64_t kGen4 = 0x1000c0101000a000;
constexpr uint64_t kGen5Upper = 0x1000c03010000000;
constexpr uint64_t kGen5Lower = 0x1000c03010001000;

/// Generation of a PEX switch; 0: not a PEX switch of this level.
int generation(const Node& node, bool upper) {
  if (node.type != NodeType::kPci) {
    return 0;
  }
  const uint64_t model = node.pci_ids & kModelMask;
  if (model == kGen4) {
    return 4;
  }
  return model == (upper ? kGen5Upper : kGen5Lower) ? 5 : 0;
}

/// Moves the links of `lower` to `upper`.
void merge(System& system, int upper, int lower) {
  const std::vector<Link> links = std::exchange(system.nodes[static_cast<size_t>(lower)].links, {});
  for (const Link& link : links) {
    std::vector<Link>& back = system.nodes[static_cast<size_t>(link.to)].links;
    back.erase(std::remove_if(back.begin(), back.end(),
                              [lower](const Link& known) { return known.to == lower; }),
               back.end());
    if (link.to != upper) {
      connect_both(system, upper, link.to, link.type, link.gb_per_s);
    }
  }
}

}  // namespace

void flatten_broadcom_switches(System& system) {
  std::vector<bool> keep(system.nodes.size(), true);
  for (const int upper : system.of_type.at(static_cast<size_t>(NodeType::kPci))) {
    const int wanted = generation(system.nodes[static_cast<size_t>(upper)], true);
    if (wanted == 0 || !keep[static_cast<size_t>(upper)]) {
      continue;
    }
    const std::vector<Link> links = system.nodes[static_cast<size_t>(upper)].links;
    for (const Link& link : links) {
      if (generation(system.nodes[static_cast<size_t>(link.to)], false) == wanted &&
          keep[static_cast<size_t>(link.to)]) {
        merge(system, upper, link.to);
        keep[static_cast<size_t>(link.to)] = false;
      }
    }
  }
  system = with_nodes(system, keep);
}

}  // namespace plexus
