// SPDX-License-Identifier: Apache-2.0
// The nodes' channels joined to those of the communicator. A ring goes through one node after the
// other: in by the first rank of the node's chain, out by the last. A tree is the chain inside a
// node and a double binary tree between nodes. Every search channel becomes two: one for each tree.
// Over several datacenters a ring goes through one datacenter after the other, the fewest crossings
// that close it (where the datacenters form a line, those in the middle are passed twice, half of
// their nodes each time); a tree is one tree in each datacenter, whose root is below the root of
// the next.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "core/base/result.hpp"
#include "core/topo/search.hpp"

namespace plexus {

inline constexpr int kChannelsMax = 64;

/// Ranks that reach each other without the network. Nodes alike may share `found`: `rank_offset` is
/// added to its ranks.
struct ClusterNode {
  const NodeChannels* found = nullptr;
  int rank_offset = 0;
  int sm_min = 0;
};

struct ChannelLimits {
  int min = 0;  // 0: as found; channels are repeated to have as many
  int max = 0;  // 0: as found
};

/// Where the nodes stand. Empty: all in one.
struct Datacenters {
  std::vector<int> of_node;
  bool scatter = true;      // channels cross at different nodes
  int device_of_rank0 = 0;  // communicators of different GPUs cross at different nodes, too
  /// The datacenters that a ring goes through, one after the other, the first again after the last;
  /// a datacenter may come more than once. Empty: each once, in the order of their first nodes.
  std::vector<int> visits;
  bool every_node = false;  // channels cross at all nodes; else at a power of two, as NCCL has it
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
  ChannelGraph ring;  // what the nodes agree on; its channels are those of the first node
  ChannelGraph tree;
  std::vector<std::vector<int>> rings;  // by channel: all ranks in order, from rank 0
  std::vector<TreeLinks> trees;         // by channel
  std::vector<int> ring_crossings;      // by channel: edges between datacenters
  std::vector<int> tree_crossings;

  [[nodiscard]] int channels() const { return static_cast<int>(rings.size()); }
};

/// Ranks must be 0..n-1, each in one node; nodes stand in the order of their lowest ranks.
Result<JoinedChannels> join_nodes(std::span<const ClusterNode> nodes, const JoinOptions& options);

}  // namespace plexus
