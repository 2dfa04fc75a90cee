// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/topo/text.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/text.hpp"

namespace plexus {
namespace {

const Node& at(const System& system, int index) { return system.nodes[static_cast<size_t>(index)]; }

std::string cpu_text(const CpuDetail& cpu) {
  constexpr std::array kArchs = {"x86_64", "arm64", "ppc64", "unknown CPU"};
  constexpr std::array kVendors = {"Intel", "AMD", "Zhaoxin", ""};
  return fmt::format("{}{}{}", kArchs.at(static_cast<size_t>(cpu.kind.arch)),
                     cpu.kind.vendor == CpuVendor::kOther ? "" : " ",
                     kVendors.at(static_cast<size_t>(cpu.kind.vendor)));
}

/// The details after the label: ranks of a device, NVLinks, the port's speed.
std::string detail_text(const System& system, const Node& node) {
  std::string text;
  if (node.type == NodeType::kNet) {
    text += fmt::format("  {} GB/s", gb_text(node.net.gb_per_s));
  }
  for (const Link& link : node.links) {
    const Node& to = at(system, link.to);
    if (to.type == NodeType::kGpu) {
      text += fmt::format("  rank {}", to.rank.rank);
    } else if (link.type == LinkType::kNvl || link.type == LinkType::kC2c) {
      text += fmt::format("  {} {} to {}", name(link.type), gb_text(link.gb_per_s),
                          to.type == NodeType::kDevice ? bus_id_text(to.id) : node_label(to));
    }
  }
  return text;
}

void format_below(
    const System& system, int index, int above, const std::string& indent, std::string& out) {
  std::vector<Link> below;
  for (const Link& link : at(system, index).links) {
    const bool down = (link.type == LinkType::kPci && at(system, link.to).type != NodeType::kCpu) ||
                      (link.type == LinkType::kNet && at(system, link.to).type == NodeType::kNet);
    if (down && link.to != above) {
      below.push_back(link);
    }
  }
  for (const Link& link : below) {
    const bool last = &link == &below.back();
    const Node& node = at(system, link.to);
    out += fmt::format("{}{}{}{}{}\n", indent, last ? "└─ " : "├─ ", node_label(node),
                       link.type == LinkType::kPci && link.gb_per_s < kLocalGbPerS
                           ? fmt::format("  {} GB/s", gb_text(link.gb_per_s))
                           : "",
                       detail_text(system, node));
    format_below(system, link.to, index, indent + (last ? "   " : "│  "), out);
  }
}

void format_paths(const System& system, NodeType to, std::string_view heading, std::string& out) {
  constexpr int kWide = 24;  // more columns than a terminal has
  const int ranks = system.count(NodeType::kGpu);
  if (ranks == 0 || system.count(to) == 0) {
    return;
  }
  out += fmt::format("\n{}\n{:>8}", heading, "");
  const int columns = std::min(system.count(to), kWide);
  for (int column = 0; column < columns; ++column) {
    const Node& node = system.node(to, column);
    out += fmt::format("{:>11}", to == NodeType::kNet ? fmt::format("NET {}", node.net.device)
                                                      : fmt::format("rank {}", node.rank.rank));
  }
  out += "\n";
  for (int rank = 0; rank < ranks; ++rank) {
    const Node& node = system.node(NodeType::kGpu, rank);
    out += fmt::format("{:>8}", fmt::format("rank {}", node.rank.rank));
    for (int column = 0; column < columns; ++column) {
      const Path& path = system.path(NodeType::kGpu, rank, to, column);
      const bool itself = to == NodeType::kGpu && column == rank;
      out += fmt::format(
          "{:>11}", itself ? "-" : fmt::format("{} {}", name(path.type), gb_text(path.gb_per_s)));
    }
    out += "\n";
  }
  if (columns < system.count(to)) {
    out += fmt::format("{:>8}({} more columns are left out)\n", "", system.count(to) - columns);
  }
}

void format_graph(std::string_view title, const ChannelGraph& graph, bool inter, std::string& out) {
  if (graph.channels() == 0) {
    return;
  }
  out += fmt::format(
      "{}: pattern {}, {} channel{} of {} GB/s inside, {} GB/s to the network, "
      "{}/{}, cross NIC {}, {} channels\n",
      title, static_cast<int>(graph.pattern), graph.channels(), graph.channels() == 1 ? "" : "s",
      gb_text(graph.intra_gb_per_s), gb_text(graph.inter_gb_per_s), name(graph.intra_type),
      name(graph.inter_type), graph.cross_nic, graph.same_channels ? "same" : "different");
  for (size_t i = 0; i < graph.ranks.size(); ++i) {
    const std::string ranks = fmt::format("{}", fmt::join(graph.ranks[i], " "));
    out += inter ? fmt::format("  {:>2}: NET {} | {} | NET {}\n", i, graph.nets[i].in, ranks,
                               graph.nets[i].out)
                 : fmt::format("  {:>2}: {}\n", i, ranks);
  }
}

std::string ring_text(const std::vector<int>& ring) {
  constexpr size_t kShown = 32;
  std::string text = fmt::format(
      "{}", fmt::join(ring.begin(),
                      ring.begin() + static_cast<ptrdiff_t>(std::min(kShown, ring.size())), " "));
  return ring.size() > kShown ? text + fmt::format(" ... ({} ranks)", ring.size()) : text;
}

}  // namespace

std::string gb_text(float gb_per_s) {
  std::string text = fmt::format("{:.2f}", gb_per_s);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) {
    text.pop_back();
  }
  return text;
}

std::string node_label(const Node& node) {
  switch (node.type) {
    case NodeType::kGpu:
      return fmt::format("rank {}", node.rank.rank);
    case NodeType::kDevice:
      return node.rank.is_host ? fmt::format("HOST {}", node.rank.rank)
                               : fmt::format("GPU {} {} sm {}", node.rank.device,
                                             bus_id_text(node.id), node.rank.sm);
    case NodeType::kCpu:
      return fmt::format("CPU {} {}", node.cpu.numa, cpu_text(node.cpu));
    case NodeType::kNet:
      return fmt::format("NET {} {}", node.net.device, node.net.name);
    case NodeType::kNvs:
      return "NVSwitch";
    case NodeType::kPci:
    case NodeType::kNic:
      break;
  }
  return fmt::format("{} {}", name(node.type), bus_id_text(node.id));
}

std::string format_machine(const System& system) {
  std::string out = fmt::format("{}{}, {}; widest path {} GB/s, most out of one device {} GB/s\n",
                                system.name.empty() ? "" : system.name + ": ",
                                counted(static_cast<size_t>(system.count(NodeType::kGpu)), "rank"),
                                counted(static_cast<size_t>(system.count(NodeType::kNet)), "port"),
                                gb_text(system.max_gb_per_s), gb_text(system.total_gb_per_s));
  for (int cpu = 0; cpu < system.count(NodeType::kCpu); ++cpu) {
    const int index = system.index_of(NodeType::kCpu, cpu);
    out += node_label(at(system, index));
    for (const Link& link : at(system, index).links) {
      if (link.type == LinkType::kSys) {
        out +=
            fmt::format("  SYS {} to CPU {}", gb_text(link.gb_per_s), at(system, link.to).cpu.numa);
      }
    }
    out += "\n";
    format_below(system, index, -1, "", out);
  }
  format_paths(system, NodeType::kGpu, "Paths between ranks, type and GB/s", out);
  format_paths(system, NodeType::kNet, "Paths to ports", out);
  return out;
}

std::string format_cluster(const ClusterChannels& cluster) {
  std::string out;
  for (size_t part = 0; part < cluster.found.size(); ++part) {
    const size_t kind = cluster.kinds[part];
    const auto first = std::find(cluster.kinds.begin(), cluster.kinds.end(), kind);
    const auto parts = std::count(first, cluster.kinds.end(), kind);
    if (cluster.kinds.back() > 0) {
      out += fmt::format("Machine {}\n", kind);
    }
    if (parts > 1) {
      out += fmt::format("Part {} of the machine (the network is the better way between parts)\n",
                         static_cast<std::ptrdiff_t>(part) - (first - cluster.kinds.begin()));
    }
    const bool inter = cluster.parts[part].inter;
    format_graph("ring", cluster.found[part].ring, inter, out);
    format_graph("tree", cluster.found[part].tree, inter, out);
    format_graph("nvls", cluster.found[part].nvls, inter, out);
  }
  const JoinedChannels& joined = cluster.joined;
  out += fmt::format("{}, {}\n", counted(static_cast<size_t>(joined.ranks), "rank"),
                     counted(static_cast<size_t>(joined.channels()), "channel"));
  for (size_t i = 0; i < joined.rings.size(); ++i) {
    out += fmt::format("  {:02}: {}\n", i, ring_text(joined.rings[i]));
  }
  return out;
}

std::string format_nccl_times(const NcclModel& model, const std::vector<size_t>& sizes) {
  std::string out =
      "NCCL's own model, us; * is what it chooses. Not what calls take, and not what Plexus's "
      "schedules cost\n";
  for (size_t index = 0; index < kNcclCollectives; ++index) {
    const auto collective = static_cast<NcclCollective>(index);
    out += fmt::format("\n{:<14}", name(collective));
    for (const NcclAlternative& alternative : model.alternatives(collective)) {
      out += fmt::format(
          "{:>15}", fmt::format("{}/{}", name(alternative.algorithm), name(alternative.protocol)));
    }
    out += "\n";
    for (const size_t bytes : sizes) {
      const NcclAlternative* const chosen = &model.choose(collective, bytes);
      out += fmt::format("{:>14}", bytes);
      for (const NcclAlternative& alternative : model.alternatives(collective)) {
        out += fmt::format("{:>14.1f}{}", model.time_us(collective, alternative, bytes),
                           &alternative == chosen ? '*' : ' ');
      }
      out += "\n";
    }
  }
  return out;
}

}  // namespace plexus
