// SPDX-License-Identifier: Apache-2.0
// A machine for Graphviz: its tree from left to right, so that it grows down the page as machines
// grow, with ranks in the boxes of their devices and ports in those of their cards; below it the
// rings, each distinct one once, as chains of their own.
#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/cli/topo/text.hpp"

namespace plexus {
namespace {

const Node& node_at(const System& system, int index) {
  return system.nodes[static_cast<size_t>(index)];
}

std::string escape_dot(const std::string& text) {
  std::string escaped;
  for (const char character : text) {
    escaped += character == '"' || character == '\\' ? std::string{'\\', character}
                                                     : std::string(1, character);
  }
  return escaped;
}

/// Those that are drawn in the box of their device or card.
bool is_inside(NodeType type) { return type == NodeType::kGpu || type == NodeType::kNet; }

/// A box: what is inside it, one a line, then itself.
std::string box_text(const System& system, const Node& node) {
  std::string text;
  for (const Link& link : node.links) {
    const Node& to = node_at(system, link.to);
    if (is_inside(to.type)) {
      text += escape_dot(node_label(to));
      text +=
          to.type == NodeType::kNet ? fmt::format(", {} GB/s\\n", gb_text(to.net.gb_per_s)) : "\\n";
    }
  }
  return text + escape_dot(node_label(node));
}

std::string format_boxes(const System& system) {
  constexpr std::array kFills = {"#d5e8d4", "#f5f5f5", "#d0e0f0", "#ffe6cc",
                                 "#fff2cc", "#fff2cc", "#d5e8d4"};
  std::string out;
  for (size_t i = 0; i < system.nodes.size(); ++i) {
    const Node& node = system.nodes[i];
    if (!is_inside(node.type)) {
      out += fmt::format("  n{} [label=\"{}\" fillcolor=\"{}\"];\n", i, box_text(system, node),
                         kFills.at(static_cast<size_t>(node.type)));
    }
  }
  return out;
}

/// Links between boxes, with their GB/s. Only those that lead away from the CPUs shape the picture.
std::string format_links(const System& system) {
  const auto is_across = [&](const Node& node, const Link& link) {
    return link.type == LinkType::kSys || node_at(system, link.to).type == node.type;
  };
  std::string out;
  for (size_t i = 0; i < system.nodes.size(); ++i) {
    const Node& node = system.nodes[i];
    for (const Link& link : node.links) {
      if (static_cast<int>(i) < link.to && !is_inside(node.type) &&
          !is_inside(node_at(system, link.to).type)) {
        out += fmt::format(
            "  n{} -- n{} [label=\"{} {}\"{}{}];\n", i, link.to, name(link.type),
            gb_text(link.gb_per_s), link.type == LinkType::kSys ? " style=dashed" : "",
            is_across(node, link) && link.type != LinkType::kPci ? " constraint=false" : "");
      }
    }
  }
  return out;
}

/// The words of a ring: ports where it enters and leaves the machine, and its ranks in order.
std::vector<std::string> ring_words(const ChannelGraph& graph, size_t channel, bool inter) {
  std::vector<std::string> words;
  for (const int rank : graph.ranks[channel]) {
    words.push_back(fmt::format("rank {}", rank));
  }
  if (inter) {
    words.insert(words.begin(), fmt::format("from NET {}", graph.nets[channel].in));
    words.push_back(fmt::format("to NET {}", graph.nets[channel].out));
  } else {
    words.push_back(words.front());
  }
  return words;
}

std::string format_rings(const System& system, const ChannelGraph& graph) {
  constexpr std::array kColours = {"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd",
                                   "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf"};
  std::map<std::vector<std::string>, std::vector<size_t>> channels;  // by ring
  for (size_t channel = 0; channel < graph.ranks.size(); ++channel) {
    if (graph.ranks[channel].size() > 1) {
      channels[ring_words(graph, channel, system.inter)].push_back(channel);
    }
  }
  std::string out;
  for (size_t first = 0; first < graph.ranks.size(); ++first) {
    const std::vector<std::string> words = ring_words(graph, first, system.inter);
    const std::vector<size_t>& drawn = channels[words];
    if (drawn.empty() || drawn.front() != first) {
      continue;
    }
    out += fmt::format(
        "  subgraph cluster_ring{} {{\n    label=\"ring of channel {}, {} GB/s each\" "
        "color=\"#cccccc\";\n    node [shape=ellipse fillcolor=white];\n"
        "    edge [color=\"{}\" penwidth=2 dir=forward];\n",
        first, fmt::join(drawn, ", "), gb_text(graph.intra_gb_per_s),
        kColours.at(first % kColours.size()));
    std::string chain;
    for (size_t step = 0; step < words.size(); ++step) {
      out += fmt::format("    r{}_{} [label=\"{}\"];\n", first, step, words[step]);
      chain += fmt::format("{}r{}_{}", step == 0 ? "" : " -- ", first, step);
    }
    out += fmt::format("    {};\n  }}\n", chain);
  }
  return out;
}

}  // namespace

std::string format_dot(const System& system, const NodeChannels* found) {
  return "graph machine {\n  rankdir=LR;\n  fontname=sans;\n"
         "  node [shape=box style=filled fontname=sans];\n"
         "  edge [fontname=sans fontsize=10];\n" +
         format_boxes(system) + format_links(system) +
         (found == nullptr ? "" : format_rings(system, found->ring)) + "}\n";
}

}  // namespace plexus
