// SPDX-License-Identifier: Apache-2.0
#include "core/topo/graph_file.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/file_kind.hpp"
#include "core/base/text.hpp"
#include "core/topo/xml_tree.hpp"

namespace plexus {
namespace {

constexpr int kHostShift = 56;
constexpr uint64_t kDeviceMask = (uint64_t{1} << kHostShift) - 1;

enum GraphId : int64_t { kRingId = 0, kTreeId = 1, kNvlsId = 3 };  // 2 and 4 are CollNet's

uint64_t device_id(const Node& node, int device) {
  return (static_cast<uint64_t>(node.host) << kHostShift) | static_cast<uint64_t>(device);
}

class GraphReader {
 public:
  GraphReader(const System& system, const TopoOptions& options)
      : system_(system), options_(options) {}

  Result<GivenChannels> read(const XmlElement& root) {
    GivenChannels given;
    for (const XmlElement& element : root.children) {
      if (element.tag != "graph") {
        continue;
      }
      PLEXUS_TRY(id, element.integer("id"));
      std::optional<ChannelGraph>* const target = id == kRingId   ? &given.ring
                                                  : id == kTreeId ? &given.tree
                                                  : id == kNvlsId ? &given.nvls
                                                                  : nullptr;
      if (target == nullptr) {
        continue;  // CollNet has no channels here
      }
      PLEXUS_TRY(graph, read_graph(element));
      const bool refused = options_.cross_nic == 0 && graph.cross_nic == 1;
      if (graph.channels() > 0 && !refused) {
        *target = std::move(graph);
      }
    }
    return given;
  }

 private:
  Result<ChannelGraph> read_graph(const XmlElement& element) {
    ChannelGraph graph;
    PLEXUS_TRY(pattern, element.integer("pattern"));
    constexpr int64_t kPatternMax = 6;
    if (pattern < 1 || pattern > kPatternMax) {
      return fail(Code::kInvalidUsage, "{}: pattern {} is not in 1..{}", element.where(), pattern,
                  kPatternMax);
    }
    PLEXUS_TRY(channels, element.integer("nchannels"));
    PLEXUS_TRY(cross_nic, element.integer("crossnic"));
    PLEXUS_TRY(intra, element.number("speedintra"));
    PLEXUS_TRY(inter, element.number("speedinter"));
    PLEXUS_TRY(latency, element.number("latencyinter", 0));
    PLEXUS_TRY(same, element.integer("samechannels"));
    PLEXUS_TRY(intra_type, read_type(element, "typeintra"));
    PLEXUS_TRY(inter_type, read_type(element, "typeinter"));
    graph.pattern = static_cast<Pattern>(pattern);
    graph.cross_nic = static_cast<int>(cross_nic);
    graph.intra_gb_per_s = static_cast<float>(intra);
    graph.inter_gb_per_s = static_cast<float>(inter);
    graph.latency_us = static_cast<float>(latency);
    graph.same_channels = same != 0;
    graph.intra_type = intra_type;
    graph.inter_type = inter_type;
    for (const XmlElement& child : element.children) {
      if (child.tag == "channel" && graph.channels() < channels) {
        PLEXUS_TRY(read_channel(child, graph));
      }
    }
    if (graph.channels() < channels) {
      return fail(Code::kInvalidUsage, "{} has nchannels {}, but lists {}", element.where(),
                  channels, graph.channels());
    }
    return graph;
  }

  static Result<PathType> read_type(const XmlElement& element, std::string_view key) {
    PLEXUS_TRY(written, element.text(key));
    const std::optional<PathType> type = find_path_type(written);
    if (!type) {
      return fail(Code::kInvalidUsage, "{}: {}=\"{}\" is not a path type", element.where(), key,
                  written);
    }
    return *type;
  }

  Result<void> read_channel(const XmlElement& element, ChannelGraph& graph) {
    std::vector<int> ranks;
    std::vector<int> nets;
    for (const XmlElement& child : element.children) {
      if (child.tag == "gpu") {
        PLEXUS_TRY(rank, read_rank(child));
        if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) {
          return fail(Code::kInvalidUsage, "{}: rank {} is in the channel twice", child.where(),
                      rank);
        }
        ranks.push_back(rank);
      } else if (child.tag == "net") {
        PLEXUS_TRY(net, read_net(child));
        nets.push_back(net);
      }
    }
    const int wanted = graph.pattern == Pattern::kNvls ? 1 : system_.count(NodeType::kGpu);
    if (static_cast<int>(ranks.size()) != wanted) {
      return fail(Code::kInvalidUsage, "{} has {} ranks, expected {} ({})", element.where(),
                  ranks.size(), wanted, describe_ranks());
    }
    graph.ranks.push_back(std::move(ranks));
    graph.nets.push_back(nets.empty() ? ChannelNets{}
                                      : ChannelNets{.in = nets.front(), .out = nets.back()});
    return ok();
  }

  Result<int> read_rank(const XmlElement& element) {
    PLEXUS_TRY(device, element.hex("dev"));
    PLEXUS_TRY(rank, element.integer("rank", -1));
    for (int i = 0; i < system_.count(NodeType::kGpu); ++i) {
      const Node& node = system_.node(NodeType::kGpu, i);
      if (rank >= 0 ? node.rank.rank == rank : device_id(node, node.rank.device) == device) {
        return node.rank.rank;
      }
    }
    const std::string named =
        rank >= 0 ? fmt::format("number {}", rank) : fmt::format("dev {:#x}", device & kDeviceMask);
    return fail(Code::kInvalidUsage, "{}: no rank here has {} ({})", element.where(), named,
                describe_ranks());
  }

  Result<int> read_net(const XmlElement& element) {
    PLEXUS_TRY(device, element.hex("dev"));
    for (int i = 0; i < system_.count(NodeType::kNet); ++i) {
      const Node& node = system_.node(NodeType::kNet, i);
      if (device_id(node, node.net.device) == device) {
        return node.net.device;
      }
    }
    return fail(Code::kInvalidUsage, "{}: no NIC here has dev {:#x} ({})", element.where(),
                device & kDeviceMask, describe_nets());
  }

  /// "here: rank 0 on dev 0x0, rank 1 on the host"
  [[nodiscard]] std::string describe_ranks() const {
    return describe(NodeType::kGpu, [](const Node& node) {
      return fmt::format(
          "rank {} on {}", node.rank.rank,
          node.rank.is_host ? "the host" : fmt::format("dev {:#x}", node.rank.device));
    });
  }

  [[nodiscard]] std::string describe_nets() const {
    return describe(NodeType::kNet, [](const Node& node) {
      return fmt::format("dev {:#x} {}", node.net.device, printable(node.net.name));
    });
  }

  template <class Describe>
  [[nodiscard]] std::string describe(NodeType type, const Describe& describe_node) const {
    constexpr int kShown = 8;
    std::string text = system_.count(type) == 0 ? "here: none" : "here: ";
    for (int i = 0; i < std::min(system_.count(type), kShown); ++i) {
      text += (i == 0 ? "" : ", ") + describe_node(system_.node(type, i));
    }
    return text + (system_.count(type) > kShown ? ", ..." : "");
  }

  const System& system_;
  const TopoOptions& options_;
};

std::string hex_text(uint64_t number) { return number == 0 ? "0" : fmt::format("{:#x}", number); }

uint64_t device_of_rank(const System& system, int rank) {
  for (int i = 0; i < system.count(NodeType::kGpu); ++i) {
    const Node& node = system.node(NodeType::kGpu, i);
    if (node.rank.rank == rank) {
      return device_id(node, std::max(0, node.rank.device));
    }
  }
  return 0;
}

XmlElement element_of_net(int net) {
  return {.tag = "net",
          .attributes = {{"dev", hex_text(static_cast<uint64_t>(net))}},
          .children = {},
          .line = 0};
}

XmlElement element_of(const ChannelGraph& graph, GraphId id, const System& system) {
  XmlElement element{.tag = "graph", .attributes = {}, .children = {}, .line = 0};
  element.set("id", fmt::format("{}", static_cast<int>(id)));
  element.set("pattern", fmt::format("{}", static_cast<int>(graph.pattern)));
  element.set("crossnic", fmt::format("{}", graph.cross_nic));
  element.set("nchannels", fmt::format("{}", graph.channels()));
  element.set("speedintra", fmt::format("{}", graph.intra_gb_per_s));
  element.set("speedinter", fmt::format("{}", graph.inter_gb_per_s));
  element.set("latencyinter", fmt::format("{}", graph.latency_us));
  element.set("typeintra", name(graph.intra_type));
  element.set("typeinter", name(graph.inter_type));
  element.set("samechannels", graph.same_channels ? "1" : "0");
  for (size_t i = 0; i < graph.ranks.size(); ++i) {
    XmlElement channel{.tag = "channel", .attributes = {}, .children = {}, .line = 0};
    if (system.inter) {
      channel.children.push_back(element_of_net(graph.nets[i].in));
    }
    for (const int rank : graph.ranks[i]) {
      XmlElement gpu{.tag = "gpu", .attributes = {}, .children = {}, .line = 0};
      gpu.set("dev", hex_text(device_of_rank(system, rank)));
      gpu.set("rank", fmt::format("{}", rank));
      channel.children.push_back(std::move(gpu));
    }
    if (system.inter) {
      channel.children.push_back(element_of_net(graph.nets[i].out));
    }
    element.children.push_back(std::move(channel));
  }
  return element;
}

}  // namespace

Result<GivenChannels> parse_graphs(std::string_view text,
                                   const System& system,
                                   const TopoOptions& options) {
  PLEXUS_TRY(check_file_kind(text, FileKind::kGraphs));
  PLEXUS_TRY(root, parse_xml(text));
  if (root.tag != "graphs") {
    return fail(Code::kInvalidUsage, "{} where a graph file must have <graphs>", root.where());
  }
  PLEXUS_TRY(version, root.integer("version"));
  if (version != 1) {
    return fail(Code::kInvalidUsage, "{} has version {}; only version 1 is supported", root.where(),
                version);
  }
  return GraphReader(system, options).read(root);
}

std::string format_graphs(const NodeChannels& channels, const System& system) {
  XmlElement root{.tag = "graphs", .attributes = {{"version", "1"}}, .children = {}, .line = 0};
  root.children.push_back(element_of(channels.ring, kRingId, system));
  root.children.push_back(element_of(channels.tree, kTreeId, system));
  root.children.push_back(element_of(channels.nvls, kNvlsId, system));
  return format_xml(root);
}

}  // namespace plexus
