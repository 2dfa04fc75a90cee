// SPDX-License-Identifier: Apache-2.0
// Graphs that a program builds node by node, as logs like those of captures (graph_log.hpp).
#pragma once

#include <memory>
#include <vector>

#include "integrations/cudart/graph_log.hpp"

namespace plexus::cudart {

/// One node: what a capture of its work took down, or a whole graph.
struct GraphNode {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  std::shared_ptr<const GraphLog> log;
  std::vector<const GraphNode*> after;
};

/// In an order in which each comes after those that it waits for; empty: there is a circle.
std::vector<const GraphNode*> sort_nodes(const std::vector<std::shared_ptr<GraphNode>>& nodes);

/// A log of sorted nodes: one begins when those that it waits for are done. A node goes on in the
/// lane of one of them where it can.
GraphLog assemble(const std::vector<const GraphNode*>& sorted);

}  // namespace plexus::cudart
