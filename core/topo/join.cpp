// SPDX-License-Identifier: Apache-2.0
#include "core/topo/join.hpp"

#include <algorithm>

#include "core/topo/double_tree.hpp"

namespace plexus {
namespace {

/// What all nodes can do: the least of the numbers, the worst of the types.
ChannelGraph align(std::span<const ClusterNode> nodes, ChannelGraph NodeChannels::*which) {
  ChannelGraph agreed = nodes.front().found->*which;
  for (const ClusterNode& node : nodes) {
    const ChannelGraph& graph = node.found->*which;
    agreed.intra_gb_per_s = std::min(agreed.intra_gb_per_s, graph.intra_gb_per_s);
    agreed.inter_gb_per_s = std::min(agreed.inter_gb_per_s, graph.inter_gb_per_s);
    agreed.same_channels = agreed.same_channels && graph.same_channels;
    agreed.intra_type = worse(agreed.intra_type, graph.intra_type);
    agreed.inter_type = worse(agreed.inter_type, graph.inter_type);
    agreed.cross_nic = std::max(agreed.cross_nic, graph.cross_nic);
    agreed.pattern = std::max(agreed.pattern, graph.pattern);
  }
  return agreed;
}

Result<int> count_ranks(std::span<const ClusterNode> nodes) {
  std::vector<bool> seen;
  for (const ClusterNode& node : nodes) {
    if (node.found->ring.channels() == 0 || node.found->tree.channels() == 0) {
      return fail(Code::kInternalError, "a node without channels cannot be joined");
    }
    for (const int local : node.found->ring.ranks.front()) {
      const auto rank = static_cast<size_t>(local + node.rank_offset);
      seen.resize(std::max(seen.size(), rank + 1), false);
      if (seen[rank]) {
        return fail(Code::kInvalidUsage, "rank {} is in two nodes", rank);
      }
      seen[rank] = true;
    }
  }
  const auto missing = std::find(seen.begin(), seen.end(), false);
  if (missing != seen.end()) {
    return fail(Code::kInvalidUsage, "rank {} of {} is in no node", missing - seen.begin(),
                seen.size());
  }
  return static_cast<int>(seen.size());
}

/// On nodes with odd numbers, channels of a pair change places, so that a ring enters the next node
/// by the NIC (and rail) that it left the last node by.
int channel_on_node(int channel, size_t node, bool swap) {
  return swap && node % 2 == 1 ? channel ^ 1 : channel;
}

std::vector<int> join_ring(std::span<const ClusterNode> nodes, int channel, bool swap) {
  std::vector<int> ring;
  for (size_t node = 0; node < nodes.size(); ++node) {
    const auto local = static_cast<size_t>(channel_on_node(channel, node, swap));
    for (const int rank : nodes[node].found->ring.ranks[local]) {
      ring.push_back(rank + nodes[node].rank_offset);
    }
  }
  std::rotate(ring.begin(), std::find(ring.begin(), ring.end(), 0), ring.end());
  return ring;
}

/// A node's chain in one channel, and which of its ranks the tree between nodes uses.
struct Chain {
  const std::vector<int>* ranks;
  int offset;
  Pattern pattern;

  [[nodiscard]] int at(size_t step) const {
    return (*ranks)[std::min(step, ranks->size() - 1)] + offset;
  }
  [[nodiscard]] int parent_end() const { return at(0); }
  [[nodiscard]] int child_end(int child) const {
    if (child == 0) {
      return pattern == Pattern::kTree ? at(0) : at(1);
    }
    return pattern == Pattern::kSplitTree ? at(1) : at(0);
  }
};

void add_down(TreeLinks& tree, int rank, int child) {
  std::array<int, 3>& down = tree.down[static_cast<size_t>(rank)];
  *std::find(down.begin(), down.end(), -1) = child;
}

TreeLinks join_tree(std::span<const ClusterNode> nodes,
                    int ranks,
                    size_t channel,
                    TreePlace (*place_of)(int, int),
                    Pattern pattern) {
  TreeLinks tree{.up = std::vector<int>(static_cast<size_t>(ranks), -1),
                 .down = std::vector<std::array<int, 3>>(static_cast<size_t>(ranks), {-1, -1, -1})};
  const auto chain_of = [&](int node) {
    const ClusterNode& cluster_node = nodes[static_cast<size_t>(node)];
    return Chain{&cluster_node.found->tree.ranks[channel], cluster_node.rank_offset, pattern};
  };
  const int count = static_cast<int>(nodes.size());
  for (int node = 0; node < count; ++node) {
    const Chain chain = chain_of(node);
    for (size_t step = 1; step < chain.ranks->size(); ++step) {
      tree.up[static_cast<size_t>(chain.at(step))] = chain.at(step - 1);
      add_down(tree, chain.at(step - 1), chain.at(step));
    }
  }
  for (int node = 0; node < count; ++node) {
    const Chain chain = chain_of(node);
    const TreePlace place = place_of(count, node);
    if (place.up >= 0) {
      tree.up[static_cast<size_t>(chain.parent_end())] =
          chain_of(place.up).child_end(place.child_of_up);
    }
    for (int child = 0; child < 2; ++child) {
      const int below = place.down.at(static_cast<size_t>(child));
      if (below >= 0) {
        add_down(tree, chain.child_end(child), chain_of(below).parent_end());
      }
    }
  }
  return tree;
}

template <class T>
void repeat(std::vector<T>& channels, int count) {
  const size_t found = channels.size();
  while (static_cast<int>(channels.size()) < count) {
    channels.push_back(channels[channels.size() % found]);
  }
  channels.resize(static_cast<size_t>(count));
}

int count_channels(const JoinedChannels& joined,
                   std::span<const ClusterNode> nodes,
                   ChannelLimits limits) {
  constexpr int kSmHopper = 90;
  constexpr float kFastGbPerS = 45;
  constexpr int kFewChannels = 16;
  int count = joined.channels();
  const bool hopper = std::all_of(nodes.begin(), nodes.end(),
                                  [](const ClusterNode& node) { return node.sm_min >= kSmHopper; });
  if (hopper && nodes.size() > 1 && joined.ring.intra_gb_per_s > kFastGbPerS &&
      count < kFewChannels) {
    count *= 2;
  }
  if (limits.max > 0) {
    count = std::min(count, limits.max);
  }
  return std::clamp(std::max(count, limits.min), 1, kChannelsMax);
}

}  // namespace

Result<JoinedChannels> join_nodes(std::span<const ClusterNode> nodes, ChannelLimits limits) {
  if (nodes.empty()) {
    return fail(Code::kInvalidArgument, "no node to join");
  }
  JoinedChannels joined;
  PLEXUS_TRY(ranks, count_ranks(nodes));
  joined.ranks = ranks;
  joined.ring = align(nodes, &NodeChannels::ring);
  joined.tree = align(nodes, &NodeChannels::tree);
  int channels = kChannelsMax / 2;
  for (const ClusterNode& node : nodes) {
    channels = std::min({channels, node.found->ring.channels(), node.found->tree.channels()});
  }
  joined.search_channels = channels;
  const bool swap = joined.ring.cross_nic == 2 && channels % 2 == 0;
  for (const auto place_of : {first_tree, second_tree}) {
    for (int channel = 0; channel < channels; ++channel) {
      joined.rings.push_back(join_ring(nodes, channel, swap));
      joined.trees.push_back(
          join_tree(nodes, ranks, static_cast<size_t>(channel), place_of, joined.tree.pattern));
    }
  }
  const int count = count_channels(joined, nodes, limits);
  repeat(joined.rings, count);
  repeat(joined.trees, count);
  return joined;
}

}  // namespace plexus
