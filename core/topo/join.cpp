// SPDX-License-Identifier: Apache-2.0
#include "core/topo/join.hpp"

#include <algorithm>
#include <bit>
#include <map>

#include "core/base/text.hpp"
#include "kernels/algorithms/binary_tree.hpp"

namespace plexus {
namespace {

/// The parameters that all nodes support: the minimum of the numbers, the worst of the types.
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
      const int global = local + node.rank_offset;
      const auto rank = static_cast<size_t>(global);
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

/// On odd nodes the channels of a pair swap, so that a ring enters the next node by the NIC (and
/// rail) by which it left the previous one.
int channel_on_node(int channel, size_t node, bool swap) {
  return swap && node % 2 == 1 ? channel ^ 1 : channel;
}

/// A node's chain in one channel, and the ranks of it that the tree between nodes uses.
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

/// Indexes of the nodes of each datacenter; datacenters in order of first appearance.
std::vector<std::vector<int>> group_by_datacenter(size_t nodes, const Datacenters& datacenters) {
  std::vector<std::vector<int>> groups;
  std::map<int, size_t> group_of;
  for (size_t node = 0; node < nodes; ++node) {
    const int datacenter = datacenters.of_node.empty() ? 0 : datacenters.of_node[node];
    const auto [found, is_new] = group_of.try_emplace(datacenter, groups.size());
    if (is_new) {
      groups.emplace_back();
    }
    groups[found->second].push_back(static_cast<int>(node));
  }
  return groups;
}

/// Reverses bits 0 .. log2(power) - 1.
int mirror_low_bits(int value, int power) {
  int mirrored = 0;
  for (int bit = 1; bit < power; bit <<= 1) {
    mirrored = (mirrored << 1) | ((value & bit) != 0 ? 1 : 0);
  }
  return mirrored;
}

/// Index in 0 .. `count` - 1 of the node at which `channel` crosses to the next datacenter. The
/// order is halves, then quarters, and so on, so that a few channels are already far apart.
int crossing_node(int count, int channel, int channels, const Datacenters& datacenters) {
  if (count < 2) {
    return 0;
  }
  const int value = channels * datacenters.device_of_rank0 + (datacenters.scatter ? channel : 0);
  const auto nodes = static_cast<unsigned>(count);
  if (!datacenters.every_node) {
    return mirror_low_bits(value, static_cast<int>(std::bit_floor(nodes))) % count;
  }
  // The (value % count)-th number below count in bit-reversed order: each node once, then again.
  const int power = static_cast<int>(std::bit_ceil(nodes));
  int node = -1;
  for (int left = value % count, next = 0; left >= 0; ++next) {
    node = mirror_low_bits(next, power);
    left -= node < count ? 1 : 0;
  }
  return node;
}

/// Builds the channels one after the other.
class Joiner {
 public:
  Joiner(std::span<const ClusterNode> nodes, const JoinOptions& options, JoinedChannels& joined)
      : nodes_(nodes),
        options_(options),
        joined_(joined),
        groups_(group_by_datacenter(nodes.size(), options.datacenters)),
        visits_(visit_groups()),
        swap_(joined.ring.cross_nic == 2 && joined.search_channels % 2 == 0) {}

  void run(int channels) {
    // Inside one datacenter there are two different channels per found one; further ones are
    // copies.
    const int different = groups_.size() == 1 ? 2 * joined_.search_channels : channels;
    for (int channel = 0; channel < channels; ++channel) {
      const auto copied = static_cast<size_t>(channel - different);
      joined_.rings.push_back(channel < different ? join_ring(channel, different)
                                                  : joined_.rings[copied]);
      joined_.trees.push_back(channel < different ? join_tree(channel, different)
                                                  : joined_.trees[copied]);
      count_crossings();
    }
  }

 private:
  /// One visit of a ring to a datacenter.
  struct Visit {
    size_t group;
    size_t number;  // index among the visits to this group
    size_t count;
  };

  [[nodiscard]] std::vector<Visit> visit_groups() const {
    std::vector<Visit> visits;
    const auto group_of = [&](int datacenter) {
      const auto at = std::find_if(groups_.begin(), groups_.end(), [&](const auto& group) {
        return options_.datacenters.of_node[static_cast<size_t>(group.front())] == datacenter;
      });
      return static_cast<size_t>(at - groups_.begin());
    };
    for (const int datacenter : options_.datacenters.visits) {
      const size_t group = group_of(datacenter);
      const auto before = std::count_if(visits.begin(), visits.end(),
                                        [&](const Visit& visit) { return visit.group == group; });
      visits.push_back({group, static_cast<size_t>(before), 0});
    }
    for (size_t group = 0; visits.size() < groups_.size(); ++group) {
      visits.push_back({group, 0, 0});
    }
    for (Visit& visit : visits) {
      visit.count =
          static_cast<size_t>(std::count_if(visits.begin(), visits.end(), [&](const Visit& other) {
            return other.group == visit.group;
          }));
    }
    return visits;
  }

  /// The ranks that a ring passes in a visit. With several visits each gets a share of the nodes,
  /// or of the ranks if there are fewer nodes than visits.
  [[nodiscard]] std::vector<int> pass(const Visit& visit, int channel, int channels) const {
    const int found = channel % joined_.search_channels;
    const std::vector<int>& group = groups_[visit.group];
    const size_t size = group.size();
    const size_t last = groups_.size() == 1
                            ? size - 1
                            : static_cast<size_t>(crossing_node(static_cast<int>(size), channel,
                                                                channels, options_.datacenters));
    const bool by_node = size >= visit.count;
    std::vector<int> ranks;
    for (size_t step = 0; step < size; ++step) {
      if (by_node && step * visit.count / size != visit.number) {
        continue;
      }
      const auto node = static_cast<size_t>(group[(last + 1 + step) % size]);
      const auto local = static_cast<size_t>(channel_on_node(found, node, swap_));
      for (const int rank : nodes_[node].found->ring.ranks[local]) {
        ranks.push_back(rank + nodes_[node].rank_offset);
      }
    }
    if (by_node) {
      return ranks;
    }
    const auto cut = [&](size_t number) {
      return ranks.begin() + static_cast<std::ptrdiff_t>(number * ranks.size() / visit.count);
    };
    return {cut(visit.number), cut(visit.number + 1)};
  }

  [[nodiscard]] std::vector<int> join_ring(int channel, int channels) const {
    std::vector<int> ring;
    for (const Visit& visit : visits_) {
      const std::vector<int> ranks = pass(visit, channel, channels);
      ring.insert(ring.end(), ranks.begin(), ranks.end());
    }
    std::rotate(ring.begin(), std::find(ring.begin(), ring.end(), 0), ring.end());
    return ring;
  }

  [[nodiscard]] TreeLinks join_tree(int channel, int channels) const {
    const auto ranks = static_cast<size_t>(joined_.ranks);
    TreeLinks tree{.up = std::vector<int>(ranks, -1),
                   .down = std::vector<std::array<int, 3>>(ranks, {-1, -1, -1})};
    const int found = channel % joined_.search_channels;
    for (size_t node = 0; node < nodes_.size(); ++node) {
      const Chain chain = chain_of(static_cast<int>(node), found);
      for (size_t step = 1; step < chain.ranks->size(); ++step) {
        link(tree, chain.at(step), chain.at(step - 1));
      }
    }
    const int firsts = (channels + 1) / 2;
    const bool second = channel >= firsts;
    int root_below = -1;
    for (const std::vector<int>& group : groups_) {
      const int pair = second ? channel - firsts : channel;
      const int root = join_group(tree, group, second, root_of(group, pair, channels), found);
      if (root_below >= 0) {
        link(tree, chain_of(root_below, found).parent_end(), chain_of(root, found).child_end(0));
      }
      root_below = root;
    }
    return tree;
  }

  /// Rotation of a group's first tree.
  [[nodiscard]] int root_of(const std::vector<int>& group, int pair, int channels) const {
    return groups_.size() == 1 ? 0
                               : 2 * crossing_node(static_cast<int>(group.size()) / 2, pair,
                                                   channels, options_.datacenters);
  }

  /// Builds the group's own tree and returns its root (a node).
  int join_group(
      TreeLinks& tree, const std::vector<int>& group, bool second, int turn, int found) const {
    const int size = static_cast<int>(group.size());
    const auto node_at = [&](int place) {
      return group[static_cast<size_t>((place + turn) % size)];
    };
    int root = -1;
    for (int index = 0; index < size; ++index) {
      const int turned = (index + size - turn) % size;
      const TreePlace place = second ? second_tree(size, turned) : first_tree(size, turned);
      const Chain chain = chain_of(group[static_cast<size_t>(index)], found);
      root = place.up < 0 ? group[static_cast<size_t>(index)] : root;
      if (place.up >= 0) {
        tree.up[static_cast<size_t>(chain.parent_end())] =
            chain_of(node_at(place.up), found).child_end(place.child_of_up);
      }
      for (int child = 0; child < 2; ++child) {
        const int below = place.down[child];
        if (below >= 0) {
          add_down(tree, chain.child_end(child), chain_of(node_at(below), found).parent_end());
        }
      }
    }
    return root;
  }

  static void link(TreeLinks& tree, int below, int above) {
    tree.up[static_cast<size_t>(below)] = above;
    add_down(tree, above, below);
  }

  [[nodiscard]] Chain chain_of(int node, int found) const {
    const ClusterNode& cluster_node = nodes_[static_cast<size_t>(node)];
    return {.ranks = &cluster_node.found->tree.ranks[static_cast<size_t>(found)],
            .offset = cluster_node.rank_offset,
            .pattern = joined_.tree.pattern};
  }

  void count_crossings() {
    int in_ring = 0;
    int in_tree = 0;
    if (groups_.size() > 1) {
      if (datacenter_of_.empty()) {
        note_datacenters();
      }
      const std::vector<int>& ring = joined_.rings.back();
      for (size_t step = 0; step < ring.size(); ++step) {
        in_ring += crosses(ring[step], ring[(step + 1) % ring.size()]) ? 1 : 0;
      }
      const std::vector<int>& up = joined_.trees.back().up;
      for (size_t rank = 0; rank < up.size(); ++rank) {
        in_tree += up[rank] >= 0 && crosses(static_cast<int>(rank), up[rank]) ? 1 : 0;
      }
    }
    joined_.ring_crossings.push_back(in_ring);
    joined_.tree_crossings.push_back(in_tree);
  }

  void note_datacenters() {
    datacenter_of_.resize(static_cast<size_t>(joined_.ranks));
    for (size_t group = 0; group < groups_.size(); ++group) {
      for (const int number : groups_[group]) {
        const ClusterNode& node = nodes_[static_cast<size_t>(number)];
        for (const int rank : node.found->ring.ranks.front()) {
          const int global = rank + node.rank_offset;
          datacenter_of_[static_cast<size_t>(global)] = group;
        }
      }
    }
  }
  [[nodiscard]] bool crosses(int left, int right) const {
    return datacenter_of_[static_cast<size_t>(left)] != datacenter_of_[static_cast<size_t>(right)];
  }

  std::span<const ClusterNode> nodes_;
  const JoinOptions& options_;
  JoinedChannels& joined_;
  std::vector<std::vector<int>> groups_;
  std::vector<Visit> visits_;
  bool swap_;
  std::vector<size_t> datacenter_of_;  // by rank
};

int count_channels(const JoinedChannels& joined,
                   std::span<const ClusterNode> nodes,
                   ChannelLimits limits) {
  constexpr int kHopper = 90;
  constexpr float kFastGbPerS = 45;
  constexpr int kFewChannels = 16;
  int count = 2 * joined.search_channels;
  const bool hopper = std::all_of(nodes.begin(), nodes.end(),
                                  [](const ClusterNode& node) { return node.sm_min >= kHopper; });
  if (hopper && nodes.size() > 1 && joined.ring.intra_gb_per_s > kFastGbPerS &&
      count < kFewChannels) {
    count *= 2;
  }
  if (limits.max > 0) {
    count = std::min(count, limits.max);
  }
  return std::clamp(std::max(count, limits.min), 1, kChannelsMax);
}

Result<void> check_datacenters(std::span<const ClusterNode> nodes, const Datacenters& datacenters) {
  if (!datacenters.of_node.empty() && datacenters.of_node.size() != nodes.size()) {
    return fail(Code::kInvalidArgument, "datacenters are given for {} nodes, but there are {}",
                datacenters.of_node.size(), nodes.size());
  }
  std::map<int, size_t> ranks;
  for (size_t node = 0; node < datacenters.of_node.size(); ++node) {
    ranks[datacenters.of_node[node]] += nodes[node].found->ring.ranks.front().size();
  }
  for (const auto& [datacenter, members] : ranks) {
    const auto visits = static_cast<size_t>(
        std::count(datacenters.visits.begin(), datacenters.visits.end(), datacenter));
    if (!datacenters.visits.empty() && (visits == 0 || visits > members)) {
      return fail(Code::kInvalidUsage,
                  "a ring has to pass through datacenter {} {} times, but it has {}: connect "
                  "its neighbours by a link, or place more ranks there",
                  datacenter, visits, counted(members, "rank"));
    }
  }
  return ok();
}

}  // namespace

Result<JoinedChannels> join_nodes(std::span<const ClusterNode> nodes, const JoinOptions& options) {
  if (nodes.empty()) {
    return fail(Code::kInvalidArgument, "no node to join");
  }
  PLEXUS_TRY(check_datacenters(nodes, options.datacenters));
  JoinedChannels joined;
  PLEXUS_TRY(ranks, count_ranks(nodes));
  joined.ranks = ranks;
  joined.ring = align(nodes, &NodeChannels::ring);
  joined.tree = align(nodes, &NodeChannels::tree);
  joined.search_channels = kChannelsMax / 2;
  for (const ClusterNode& node : nodes) {
    joined.search_channels = std::min(
        {joined.search_channels, node.found->ring.channels(), node.found->tree.channels()});
  }
  Joiner(nodes, options, joined).run(count_channels(joined, nodes, options.limits));
  return joined;
}

}  // namespace plexus
