// SPDX-License-Identifier: Apache-2.0
// Adds and removes nodes and links of a System. The order of a node's links is part of the result,
// because the search follows it: the widest first, and in a PCIe tree the link to the CPU last.
#pragma once

#include <vector>

#include "core/topo/system.hpp"

namespace plexus {

/// Returns the new node's index.
int add_node(System& system, NodeType type, uint64_t id, int host);

/// Bandwidths of links of one type to the same neighbour add up.
void connect(System& system, int from, int to, LinkType type, float gb_per_s);
void connect_both(System& system, int left, int right, LinkType type, float gb_per_s);

void put_uplinks_last(System& system);

/// A copy with the nodes for which `keep` is true, and the links between them.
System with_nodes(const System& system, const std::vector<bool>& keep);

}  // namespace plexus
