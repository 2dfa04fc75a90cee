// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/topo/nccl_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "guest/assert.hpp"

namespace plexus {
namespace {

using ByNodes = std::array<double, 3>;  // one, two, more

constexpr size_t at(auto kind) { return static_cast<size_t>(kind); }

// Latencies in us: by algorithm, which are those that have an entry for a link, and protocol.
constexpr ByProtocol kTreeBase = {6.8, 14.0, 8.4};
constexpr ByProtocol kRingBase = {6.6, 14.0, 8.4};
constexpr ByProtocol kPatBase = {8, 8, 8};
struct HopUs {
  ByProtocol tree;
  ByProtocol ring;
  double nvls;
  double nvls_tree;
};
constexpr HopUs kNvlinkUs = {{0.6, 1.25, 4.0}, {0.6, 1.9, 3.4}, 25, 25};
constexpr HopUs kPciUs = {{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}, 0, 0};
constexpr HopUs kNetUs = {{5.0, 8.5, 14.0}, {2.7, 4.0, 14.0}, 18, 20.9};

/// Bandwidths in GB/s that a generation of GPUs does not exceed.
struct Generation {
  int sm;
  ByNodes ll;
  ByNodes ring_ll128;  // this and the next ones by channel
  ByNodes tree_ll128;
  ByNodes tree;
  ByNodes nvls_tree;
  double nvls_efficiency;
};
constexpr std::array<Generation, 4> kGenerations = {{
    {100, {282, 90, 70}, {40, 40, 40}, {55.6, 31.67, 20}, {70, 42.8, 24}, {0, 96, 80}, 0.74},
    {90,
     {141, 45, 35},
     {36.7, 36.7, 36.7},
     {36.7, 36.7, 29},
     {38.7, 41.4, 36},
     {0, 57.7, 45.5},
     0.85},
    {80, {87.7, 22.5, 19}, {20, 20, 20}, {20, 20, 20}, {24, 23.6, 17.8}, {24, 23.6, 17.8}, 0},
    {0, {39, 39, 20.4}, {20, 20, 20}, {20, 20, 20}, {26.5, 18.5, 10}, {26.5, 18.5, 10}, 0},
}};
constexpr const Generation& kAmpere = kGenerations[2];
constexpr const Generation& kVolta = kGenerations[3];

// What is left of a tree's bandwidth, by the power of two of 64 bytes.
constexpr std::array<std::array<double, 24>, 3> kTreeFactor = {
    {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
     {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
      .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9}}};

constexpr int kSmBlackwell = 100;
constexpr int kSmAmpere = 80;
constexpr int kSmVolta = 70;
constexpr int kSmPat = 60;

bool is_reduction_or_gather(NcclCollective collective) {
  return collective == NcclCollective::kAllGather || collective == NcclCollective::kReduceScatter;
}

/// One algorithm and protocol for one collective.
class Entry {
 public:
  Entry(const NcclCluster& cluster, NcclCollective collective, NcclAlternative alternative)
      : cluster_(cluster),
        collective_(collective),
        algorithm_(alternative.algorithm),
        protocol_(alternative.protocol),
        ranks_(cluster.ranks),
        nodes_(cluster.nodes),
        per_node_(cluster.ranks / std::max(cluster.nodes, 1)),
        column_(static_cast<size_t>(std::clamp(cluster.nodes, 1, 3)) - 1),
        generation_(*std::find_if(kGenerations.begin(),
                                  kGenerations.end(),
                                  [&](const Generation& row) { return cluster.sm_min >= row.sm; })),
        graph_(algorithm_ == NcclAlgorithm::kRing ? cluster.ring
               : algorithm_ == NcclAlgorithm::kTree || algorithm_ == NcclAlgorithm::kPat
                   ? cluster.tree
                   : cluster.nvls) {}

  [[nodiscard]] std::optional<NcclAlternative> solve() const {
    const double gb_per_s = exists() ? bandwidth() : 0;
    return gb_per_s > 0 ? std::optional(NcclAlternative{algorithm_, protocol_, latency(), gb_per_s})
                        : std::nullopt;
  }

 private:
  [[nodiscard]] bool exists() const {
    const bool all_reduce = collective_ == NcclCollective::kAllReduce;
    const bool one_of_two = is_reduction_or_gather(collective_);
    const bool simple = protocol_ == NcclProtocol::kSimple;
    if (graph_.channels == 0 || (protocol_ == NcclProtocol::kLL128 && !has_ll128())) {
      return false;
    }
    switch (algorithm_) {
      case NcclAlgorithm::kTree:
        return all_reduce;
      case NcclAlgorithm::kRing:
        return true;
      case NcclAlgorithm::kNvls: {
        constexpr int kNvlsRanksMax = 32;
        return simple && nodes_ == 1 && graph_.channels > 1 &&
               (all_reduce || (one_of_two && per_node_ <= kNvlsRanksMax));
      }
      case NcclAlgorithm::kNvlsTree:
        return simple && nodes_ > 1 && graph_.channels > 1 && all_reduce;
      case NcclAlgorithm::kPat:
        return simple && one_of_two && per_node_ == 1 && nodes_ > 1 && cluster_.sm_min >= kSmPat;
    }
    return false;
  }

  [[nodiscard]] bool has_ll128() const {
    const PathType farthest = cluster_.sm_min >= kSmHopper ? PathType::kPxn : PathType::kPxb;
    return graph_.inter_type <= farthest && graph_.intra_type <= PathType::kNvb &&
           cluster_.sm_min >= kSmVolta &&
           (cluster_.sm_min == cluster_.sm_max || cluster_.sm_min >= kSmHopper);
  }

  [[nodiscard]] double most_ll() const {
    if (nodes_ == 1) {
      return generation_.ll[0];
    }
    return (cluster_.any_amd ? kAmpere : kVolta).ll[column_];
  }

  /// Bandwidth of the links, before it is known how often they carry a byte.
  [[nodiscard]] double bus() const {
    const double channels = graph_.channels;
    const double speed = nodes_ <= 2 ? graph_.intra_gb_per_s : graph_.inter_gb_per_s;
    if (algorithm_ == NcclAlgorithm::kNvls || algorithm_ == NcclAlgorithm::kNvlsTree) {
      const double twice = collective_ == NcclCollective::kAllReduce
                               ? 2
                               : static_cast<double>(per_node_ - 1) / per_node_;
      const double intra =
          graph_.intra_gb_per_s * generation_.nvls_efficiency * (channels - 1) / channels * twice;
      const bool tree = algorithm_ == NcclAlgorithm::kNvlsTree;
      const double inter = graph_.inter_gb_per_s * (tree && nodes_ <= 2 ? 2 : 1);
      const double most =
          tree ? generation_.nvls_tree[column_] : std::numeric_limits<double>::infinity();
      return channels * std::min({intra, inter, most});
    }
    const double all = channels * speed;
    constexpr double kLL128Payload = 0.92;
    if (algorithm_ == NcclAlgorithm::kPat) {
      return all * 0.75;
    }
    if (algorithm_ == NcclAlgorithm::kRing) {
      switch (protocol_) {
        case NcclProtocol::kLL:
          return std::min(most_ll(), all / 2);
        case NcclProtocol::kLL128:
          return std::min(all * kLL128Payload, channels * generation_.ring_ll128[column_]);
        case NcclProtocol::kSimple:
          return all;
      }
    }
    double tree = std::min(all * 0.92, channels * generation_.tree[column_]);
    if (protocol_ == NcclProtocol::kLL) {
      tree = std::min(tree / 3.8, most_ll());
    } else if (protocol_ == NcclProtocol::kLL128) {
      const double payload = nodes_ == 1 ? 7.0 / 9 : 120.0 / 128;
      tree = std::min(tree * payload, channels * generation_.tree_ll128[column_]);
    }
    return graph_.pattern == Pattern::kTree ? tree * 0.85 : tree;
  }

  /// Along a ring.
  [[nodiscard]] int steps() const {
    return collective_ == NcclCollective::kAllReduce ? 2 * (ranks_ - 1)
           : is_reduction_or_gather(collective_)     ? ranks_ - 1
                                                     : ranks_;
  }

  [[nodiscard]] double bandwidth() const {
    const bool ring = algorithm_ == NcclAlgorithm::kRing;
    if (!ring && is_reduction_or_gather(collective_)) {
      return bus();
    }
    return algorithm_ == NcclAlgorithm::kTree ? bus() / 2 : bus() * ranks_ / steps();
  }

  [[nodiscard]] double latency() const {
    const HopUs& near = graph_.intra_type == PathType::kNvl ? kNvlinkUs : kPciUs;
    const bool simple = protocol_ == NcclProtocol::kSimple;
    const size_t protocol = at(protocol_);
    const bool power = cluster_.arch == CpuArch::kPower && &near == &kPciUs && simple;
    const double near_tree = power ? near.ring[protocol] : near.tree[protocol];
    const double flush = graph_.latency_us * (simple ? 2 : 1);
    const double far_tree = kNetUs.tree[protocol] + flush;
    const double levels = std::bit_width(static_cast<unsigned>(nodes_)) - 1;  // of the nodes
    switch (algorithm_) {
      case NcclAlgorithm::kTree:
        return kTreeBase[protocol] + 2 * ((per_node_ - 1) * near_tree + levels * far_tree);
      case NcclAlgorithm::kNvls:
        return near.nvls;
      case NcclAlgorithm::kNvlsTree:
        return near.nvls_tree + 2 * levels * (kNetUs.nvls_tree + flush);
      case NcclAlgorithm::kPat:
        return kPatBase[protocol] + levels * far_tree / 3.5 + ranks_ * 2.8;
      case NcclAlgorithm::kRing:
        break;
    }
    return kRingBase[protocol] +
           ring_hops_us(near.ring[protocol], near_tree,
                        (per_node_ == 1 ? kNetUs.tree : kNetUs.ring)[protocol] + flush);
  }

  [[nodiscard]] double ring_hops_us(double near, double near_tree, double far) const {
    const bool simple = protocol_ == NcclProtocol::kSimple;
    if (collective_ == NcclCollective::kBroadcast || collective_ == NcclCollective::kReduce) {
      const size_t protocol = at(protocol_);
      const double ring = nodes_ == 1 ? near : kNetUs.ring[protocol];
      const double tree = nodes_ == 1 ? near_tree : kNetUs.tree[protocol];
      return graph_.same_channels ? ring : steps() * (simple ? tree : ring);
    }
    const int between = nodes_ == 1                                 ? 0
                        : collective_ == NcclCollective::kAllReduce ? 2 * (nodes_ - 1)
                                                                    : nodes_ - 1;
    const double overhead = nodes_ == 1 ? 0 : (cluster_.any_amd ? 2.0 : 1.0) * (simple ? 3 : 1);
    return (steps() - between) * std::max(near, overhead) + between * far;
  }

  const NcclCluster& cluster_;
  NcclCollective collective_;
  NcclAlgorithm algorithm_;
  NcclProtocol protocol_;
  int ranks_;
  int nodes_;
  int per_node_;
  size_t column_;
  const Generation& generation_;
  const NcclGraph& graph_;
};

NcclGraph graph_of(const ChannelGraph& graph, int channels) {
  return {.channels = channels,
          .intra_gb_per_s = graph.intra_gb_per_s,
          .inter_gb_per_s = graph.inter_gb_per_s,
          .latency_us = graph.latency_us,
          .intra_type = graph.intra_type,
          .inter_type = graph.inter_type,
          .pattern = graph.pattern,
          .same_channels = graph.same_channels};
}

}  // namespace

const char* name(NcclCollective collective) {
  constexpr std::array kNames = {"broadcast", "reduce", "all_gather", "reduce_scatter",
                                 "all_reduce"};
  return kNames.at(at(collective));
}

const char* name(NcclAlgorithm algorithm) {
  constexpr std::array kNames = {"tree", "ring", "nvls", "nvlstree", "pat"};
  return kNames.at(at(algorithm));
}

const char* name(NcclProtocol protocol) {
  constexpr std::array kNames = {"LL", "LL128", "Simple"};
  return kNames.at(at(protocol));
}

NcclCluster describe_for_nccl(const ClusterChannels& cluster) {
  const JoinedChannels& joined = cluster.joined;
  NcclCluster result{
      .ranks = joined.ranks,
      .nodes = cluster.nodes,
      .channels = joined.channels(),
      .sm_min = std::numeric_limits<int>::max(),
      .ring = graph_of(joined.ring, joined.search_channels),
      .tree = graph_of(joined.tree, joined.search_channels),
      .nvls = graph_of(cluster.found.front().nvls, cluster.found.front().nvls.channels())};
  for (const System& part : cluster.parts) {
    result.sm_min = std::min(result.sm_min, part.sm_min());
    result.sm_max = std::max(result.sm_max, part.sm_max());
    for (int cpu = 0; cpu < part.count(NodeType::kCpu); ++cpu) {
      const CpuKind& kind = part.node(NodeType::kCpu, cpu).cpu.kind;
      result.arch = kind.arch;
      result.any_amd = result.any_amd || kind.vendor == CpuVendor::kAmd;
    }
  }
  for (const NodeChannels& found : cluster.found) {
    NcclGraph& nvls = result.nvls;
    nvls.channels = std::min(nvls.channels, found.nvls.channels());
    nvls.intra_gb_per_s = std::min<double>(nvls.intra_gb_per_s, found.nvls.intra_gb_per_s);
    nvls.inter_gb_per_s = std::min<double>(nvls.inter_gb_per_s, found.nvls.inter_gb_per_s);
  }
  return result;
}

NcclModel::NcclModel(const NcclCluster& cluster) : cluster_(cluster) {
  for (size_t collective = 0; collective < kNcclCollectives; ++collective) {
    for (uint8_t algorithm = 0; algorithm <= at(NcclAlgorithm::kPat); ++algorithm) {
      for (uint8_t protocol = 0; protocol <= at(NcclProtocol::kSimple); ++protocol) {
        const NcclAlternative asked{static_cast<NcclAlgorithm>(algorithm),
                                    static_cast<NcclProtocol>(protocol), 0, 0};
        const auto alternative =
            Entry(cluster_, static_cast<NcclCollective>(collective), asked).solve();
        if (alternative.has_value()) {
          alternatives_.at(collective).push_back(*alternative);
        }
      }
    }
    PLEXUS_ASSERT(!alternatives_.at(collective).empty());  // a ring is always there
  }
}

const std::vector<NcclAlternative>& NcclModel::alternatives(NcclCollective collective) const {
  return alternatives_.at(at(collective));
}

double NcclModel::time_us(NcclCollective collective,
                          const NcclAlternative& alternative,
                          size_t bytes) const {
  constexpr size_t kUnit = 64;
  constexpr double kBytesPerUsOfGb = 1e3;
  double latency_us = alternative.latency_us;
  double gb_per_s = alternative.gb_per_s;
  const size_t power = bytes < kUnit ? kTreeFactor[0].size()
                                     : static_cast<size_t>(std::bit_width(bytes / kUnit)) - 1;
  const bool all_reduce = collective == NcclCollective::kAllReduce;
  const bool as_tree = alternative.algorithm == NcclAlgorithm::kTree ||
                       (alternative.algorithm == NcclAlgorithm::kNvlsTree &&
                        cluster_.sm_min >= kSmBlackwell && cluster_.arch == CpuArch::kX86);
  const size_t most = alternative.algorithm == NcclAlgorithm::kTree ? 23 : 24;
  if (all_reduce && as_tree && power < most) {
    gb_per_s *= kTreeFactor.at(at(alternative.protocol)).at(power);
  }
  const size_t parts = static_cast<size_t>(cluster_.channels) * static_cast<size_t>(cluster_.ranks);
  if (all_reduce && alternative.algorithm == NcclAlgorithm::kRing &&
      alternative.protocol == NcclProtocol::kSimple && cluster_.nodes > 1 &&
      bytes / parts >= kUnit) {
    latency_us *= cluster_.sm_min < kSmAmpere ? 1.9 : 1.4;
  }
  return latency_us + static_cast<double>(bytes) / (gb_per_s * kBytesPerUsOfGb);
}

const NcclAlternative& NcclModel::choose(NcclCollective collective, size_t bytes) const {
  const std::vector<NcclAlternative>& all = alternatives(collective);
  return *std::min_element(all.begin(), all.end(),
                           [&](const NcclAlternative& a, const NcclAlternative& b) {
                             return time_us(collective, a, bytes) < time_us(collective, b, bytes);
                           });
}

}  // namespace plexus
