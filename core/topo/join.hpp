// SPDX-License-Identifier: Apache-2.0
// Joins the nodes' channels to those of the communicator. A ring passes one node after the other:
// it enters at the first rank of the node's chain and leaves at the last. A tree is the chain
// inside a node and a double binary tree between nodes. Every channel of the search becomes two,
// one for each tree.
// Over several datacenters a ring visits one datacenter after the other with as few crossings as
// possible (where the datacenters form a line, the middle ones are visited twice, with half of
// their nodes each time). A tree is one tree per datacenter, whose root is below the root of the
// next datacenter's tree, as in NCCL's cross-dc branch; communicators join datacenters by cost
// (core/datacenter, kernels/program).
#pragma once

#include <array>
#include <span>
#include <vector>

#include "core/base/result.hpp"
#include "core/topo/search.hpp"

namespace plexus {

inline constexpr int kChannelsMax = 64;

/// Ranks that reach each other without the network. Equal nodes may share `found`: `rank_offset` is
/// added to its ranks.
struct ClusterNode {
  const NodeChannels* found = nullptr;
  int rank_offset = 0;
  int sm_min = 0;
};

struct ChannelLimits {
  int min = 0;  // 0: as found; channels are duplicated to reach it
  int max = 0;  // 0: as found
};

/// The datacenters of the nodes. Empty: all nodes are in one.
struct Datacenters {
  std::vector<int> of_node;
  bool scatter = true;      // channels cross at different nodes
  int device_of_rank0 = 0;  // so that communicators of different GPUs cross at different nodes
  /// Datacenters in the order in which a ring visits them, without the return to the first; one may
  /// appear several times. Empty: each once, in the order of their first nodes.
  std::vector<int> visits;
  // channels cross at all nodes; else at a power of two of them, as in NCCL
  bool every_node = false;
};

struct JoinOptions {
  ChannelLimits limits;
  Datacenters datacenters;
};

struct TreeLinks {
  std::vector<int> up;                   // by rank; -1: none
  std::vector<std::array<int, 3>> down;  // by rank: in the chain, then in the tree between nodes
};

struct JoinedChannels {
  int ranks = 0;
  int search_channels = 0;
  ChannelGraph ring;  // the parameters common to all nodes, with the channels of the first node
  ChannelGraph tree;
  std::vector<std::vector<int>> rings;  // by channel: all ranks in order, from rank 0
  std::vector<TreeLinks> trees;         // by channel
  std::vector<int> ring_crossings;      // by channel: edges between datacenters
  std::vector<int> tree_crossings;

  [[nodiscard]] int channels() const { return static_cast<int>(rings.size()); }
};

/// Ranks must be 0..n-1, each in one node; nodes are ordered by their lowest rank.
Result<JoinedChannels> join_nodes(std::span<const ClusterNode> nodes, const JoinOptions& options);

}  // namespace plexus
