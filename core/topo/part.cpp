// SPDX-License-Identifier: Apache-2.0
#include "core/topo/part.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "core/base/bytes.hpp"
#include "core/topo/graph_file.hpp"
#include "core/topo/paths.hpp"
#include "core/topo/system.hpp"

namespace plexus {
namespace {

// A graph file names every rank, and up to this count its graph is built quickly.
constexpr size_t kGivenRanksMax = 256;

void keep_ranks(XmlElement& element, const std::vector<int>& ranks) {
  std::erase_if(element.children, [&](const XmlElement& child) {
    const bool has_rank =
        child.tag == "host" || (child.tag == "gpu" && child.find("rank") != nullptr);
    const Result<int64_t> rank = has_rank ? child.integer("rank") : int64_t{-1};
    return has_rank && (!rank || !std::binary_search(ranks.begin(), ranks.end(),
                                                     static_cast<int>(rank.value())));
  });
  for (XmlElement& child : element.children) {
    keep_ranks(child, ranks);
  }
}

/// By rank: the rank that the search sees in its place.
std::vector<int> seen_for(std::span<const HostRank> ranks, bool whole) {
  std::map<std::pair<int, std::string>, int> of_place;
  std::vector<int> seen;
  for (const HostRank& rank : ranks) {
    const int first = of_place.try_emplace({rank.numa, rank.bus_id}, rank.rank).first->second;
    seen.push_back(whole ? rank.rank : first);
  }
  return seen;
}

/// The ranks that the search sees, ascending.
std::vector<int> seen_ranks(std::span<const HostRank> ranks, bool whole) {
  std::vector<int> seen = seen_for(ranks, whole);
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  return seen;
}

std::map<int, int> index_of(const std::vector<int>& ranks) {
  std::map<int, int> indexes;
  for (const int rank : ranks) {
    indexes.emplace(rank, static_cast<int>(indexes.size()));
  }
  return indexes;
}

// ---- the message ----

void put_graph(ByteWriter& writer, const ChannelGraph& graph, const std::map<int, int>& index_of) {
  writer.put(static_cast<int32_t>(graph.pattern));
  writer.put(static_cast<int32_t>(graph.cross_nic));
  writer.put(graph.intra_gb_per_s);
  writer.put(graph.inter_gb_per_s);
  writer.put(graph.latency_us);
  writer.put(static_cast<int32_t>(graph.intra_type));
  writer.put(static_cast<int32_t>(graph.inter_type));
  writer.put(static_cast<int32_t>(graph.same_channels));
  writer.put(static_cast<int32_t>(graph.hops));
  writer.put(static_cast<int32_t>(graph.channels()));
  for (size_t channel = 0; channel < graph.ranks.size(); ++channel) {
    writer.put(static_cast<int32_t>(graph.nets[channel].in));
    writer.put(static_cast<int32_t>(graph.nets[channel].out));
    for (const int rank : graph.ranks[channel]) {
      writer.put(static_cast<int32_t>(index_of.at(rank)));
    }
  }
}

ChannelGraph take_graph(ByteReader& reader, const std::vector<int>& ranks) {
  constexpr int32_t kIntMax = std::numeric_limits<int32_t>::max();
  constexpr auto kTypeMax = static_cast<int32_t>(PathType::kDis);
  ChannelGraph graph;
  graph.pattern =
      static_cast<Pattern>(reader.take_between<int32_t>(1, static_cast<int32_t>(Pattern::kNvls)));
  graph.cross_nic = reader.take_between<int32_t>(0, 2);
  graph.intra_gb_per_s = reader.take<float>();
  graph.inter_gb_per_s = reader.take<float>();
  graph.latency_us = reader.take<float>();
  graph.intra_type = static_cast<PathType>(reader.take_between<int32_t>(0, kTypeMax));
  graph.inter_type = static_cast<PathType>(reader.take_between<int32_t>(0, kTypeMax));
  graph.same_channels = reader.take_between<int32_t>(0, 1) != 0;
  graph.hops = reader.take_between<int32_t>(0, kIntMax);
  const int channels = reader.take_between<int32_t>(0, kRingChannelsMax);
  const size_t in_channel = graph.pattern == Pattern::kNvls ? 1 : ranks.size();
  for (int channel = 0; channel < channels && !reader.broken(); ++channel) {
    ChannelNets nets;
    nets.in = reader.take_between<int32_t>(0, kIntMax);
    nets.out = reader.take_between<int32_t>(0, kIntMax);
    std::vector<int> order;
    for (size_t i = 0; i < in_channel; ++i) {
      const int index = reader.take_between<int32_t>(0, static_cast<int32_t>(ranks.size()) - 1);
      order.push_back(ranks[static_cast<size_t>(index)]);
    }
    graph.nets.push_back(nets);
    graph.ranks.push_back(std::move(order));
  }
  return graph;
}

bool has_each_once(const ChannelGraph& graph, const std::vector<int>& ranks) {
  return std::all_of(graph.ranks.begin(), graph.ranks.end(), [&](std::vector<int> order) {
    std::sort(order.begin(), order.end());
    return order == ranks;
  });
}

bool is_complete(const PartChannels& part, const std::vector<int>& numbers) {
  const NodeChannels& found = part.found;
  return found.ring.channels() > 0 && found.tree.channels() > 0 &&
         found.ring.pattern == Pattern::kRing && is_tree(found.tree.pattern) &&
         (found.nvls.channels() == 0 || found.nvls.pattern == Pattern::kNvls) &&
         has_each_once(found.ring, numbers) && has_each_once(found.tree, numbers);
}

/// The parts with their ranks, without channels.
std::vector<PartChannels> take_parts(ByteReader& reader, std::span<const HostRank> ranks) {
  const bool whole = reader.take_between<int32_t>(0, 1) != 0;
  const std::vector<int> seen = seen_ranks(ranks, whole);
  std::map<int, size_t> part_of;
  size_t count = 0;
  for (const int rank : seen) {
    const auto part =
        static_cast<size_t>(reader.take_between<int32_t>(0, static_cast<int32_t>(seen.size()) - 1));
    part_of.emplace(rank, part);
    count = std::max(count, part + 1);
  }
  std::vector<PartChannels> parts(count);
  const std::vector<int> stands_for = seen_for(ranks, whole);
  for (size_t i = 0; i < ranks.size(); ++i) {
    PartChannels& part = parts[part_of.at(stands_for[i])];
    part.whole = whole;
    part.ranks.push_back(ranks[i]);
  }
  return parts;
}

/// Those of the ranks whom `part` contains, themselves or by a representative.
std::vector<HostRank> ranks_in(const System& part, std::span<const HostRank> ranks, bool whole) {
  std::set<int> contained;
  for (int ordinal = 0; ordinal < part.count(NodeType::kGpu); ++ordinal) {
    contained.insert(part.node(NodeType::kGpu, ordinal).rank.rank);
  }
  const std::vector<int> stands_for = seen_for(ranks, whole);
  std::vector<HostRank> within;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (contained.contains(stands_for[i])) {
      within.push_back(ranks[i]);
    }
  }
  return within;
}

// ---- filling in a topology file ----

/// Keeps the first NIC of each of the names, which are removed from `names`.
void drop_ranks_and_nets(XmlElement& element, std::set<std::string>& names) {
  std::erase_if(element.children, [&](const XmlElement& child) {
    const std::string* const name = child.find("name");
    const bool kept = child.tag == "net" && name != nullptr && names.erase(*name) > 0;
    return child.tag == "host" || (child.tag == "net" && !kept);
  });
  for (XmlElement& child : element.children) {
    if (child.tag == "gpu") {  // the rank in the job that wrote the file
      std::erase_if(child.attributes, [](const auto& entry) { return entry.first == "rank"; });
    }
    drop_ranks_and_nets(child, names);
  }
}

XmlElement* find_net(XmlElement& element, const std::string& name) {
  for (XmlElement& child : element.children) {
    const std::string* const its_name = child.find("name");
    if (child.tag == "net" && its_name != nullptr && *its_name == name) {
      return &child;
    }
    if (XmlElement* const below = find_net(child, name)) {
      return below;
    }
  }
  return nullptr;
}

XmlElement& place_of_net(XmlElement& system, const NetPort& port) {
  if (XmlElement* const known = find_net(system, port.name)) {
    return *known;
  }
  std::filesystem::path path(port.pci_path);
  XmlElement* parent = nullptr;
  for (; parent == nullptr && path.has_relative_path(); path = path.parent_path()) {
    const std::string id = path.filename().string();
    parent = id.find(':') != std::string::npos ? find_pci(system, bus_id_number(id)) : nullptr;
  }
  parent = parent != nullptr ? parent : &system.children.front();
  auto nic = std::find_if(parent->children.begin(), parent->children.end(),
                          [](const XmlElement& child) { return child.tag == "nic"; });
  if (nic == parent->children.end()) {
    parent->children.push_back({.tag = "nic", .attributes = {}, .children = {}, .line = 0});
    nic = std::prev(parent->children.end());
  }
  nic->children.push_back({.tag = "net", .attributes = {}, .children = {}, .line = 0});
  return nic->children.back();
}

}  // namespace

Representatives choose_representatives(std::span<const HostRank> ranks) {
  Representatives chosen{.ranks = seen_ranks(ranks, false), .followers = {}};
  chosen.followers.resize(chosen.ranks.size());
  const std::map<int, int> indexes = index_of(chosen.ranks);
  const std::vector<int> stands_for = seen_for(ranks, false);
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].rank != stands_for[i]) {
      chosen.followers[static_cast<size_t>(indexes.at(stands_for[i]))].push_back(ranks[i].rank);
    }
  }
  return chosen;
}

Result<HostChannels> search_host(const XmlElement& machine, const PartRequest& request) {
  const bool whole = !request.graphs.empty();
  if (whole && request.ranks.size() > kGivenRanksMax) {
    return fail(
        Code::kInvalidUsage,
        "NCCL_GRAPH_FILE supports at most {} ranks per host, and this host has {}: unset it",
        kGivenRanksMax, request.ranks.size());
  }
  XmlElement seen = machine;
  keep_ranks(seen, seen_ranks(request.ranks, whole));
  auto built = build_system(seen);
  if (!built) {
    return in_file(request.machine_from, std::move(built).error());
  }
  const System& system = built.value();
  const std::vector<System> systems = split_by_reach(system, request.options, request.inter);
  HostChannels host{.parts = {}, .warnings = nvlink_warnings(systems)};
  for (const System& one : systems) {
    PartChannels part{.ranks = ranks_in(one, request.ranks, whole), .whole = whole, .found = {}};
    GivenChannels given;
    if (whole) {
      auto parsed = parse_graphs(request.graphs, one, request.options);
      if (!parsed) {
        return in_file(request.graphs_from, std::move(parsed).error());
      }
      given = std::move(parsed).value();
    }
    part.found = search_node(one, request.options, given);
    host.parts.push_back(std::move(part));
  }
  return host;
}

std::string encode(std::span<const PartChannels> parts, std::span<const HostRank> ranks) {
  const bool whole = parts.front().whole;
  std::map<int, int> part_of;  // by rank that the search saw
  for (size_t part = 0; part < parts.size(); ++part) {
    for (const int rank : seen_ranks(parts[part].ranks, whole)) {
      part_of.emplace(rank, static_cast<int>(part));
    }
  }
  ByteWriter writer;
  writer.put(static_cast<int32_t>(whole));
  for (const int rank : seen_ranks(ranks, whole)) {
    writer.put(static_cast<int32_t>(part_of.at(rank)));
  }
  for (const PartChannels& part : parts) {
    const std::map<int, int> indexes = index_of(seen_ranks(part.ranks, whole));
    put_graph(writer, part.found.ring, indexes);
    put_graph(writer, part.found.tree, indexes);
    put_graph(writer, part.found.nvls, indexes);
  }
  return writer.take();
}

Result<std::vector<PartChannels>> decode_parts(std::string_view bytes,
                                               std::span<const HostRank> ranks) {
  ByteReader reader(bytes);
  std::vector<PartChannels> parts = take_parts(reader, ranks);
  bool good = true;
  for (PartChannels& part : parts) {
    const std::vector<int> numbers = seen_ranks(part.ranks, part.whole);
    if (numbers.empty()) {
      good = false;
      break;
    }
    part.found.ring = take_graph(reader, numbers);
    part.found.tree = take_graph(reader, numbers);
    part.found.nvls = take_graph(reader, numbers);
    good = good && is_complete(part, numbers);
  }
  if (!good || !reader.whole()) {
    return fail(Code::kInvalidUsage,
                "the topology sent by the host of rank {} ({} bytes) is malformed: use the same "
                "version of Plexus on all ranks",
                ranks.empty() ? -1 : ranks.front().rank, bytes.size());
  }
  return parts;
}

NodeChannels expand(const PartChannels& part) {
  NodeChannels channels = part.found;
  if (part.whole) {
    return channels;
  }
  const Representatives chosen = choose_representatives(part.ranks);
  const auto with_followers = [&](const std::vector<int>& order) {
    std::vector<int> all;
    all.reserve(part.ranks.size());
    for (const int rank : order) {
      const auto at = std::lower_bound(chosen.ranks.begin(), chosen.ranks.end(), rank);
      const auto& followers =
          chosen.followers[static_cast<size_t>(std::distance(chosen.ranks.begin(), at))];
      all.push_back(rank);
      all.insert(all.end(), followers.begin(), followers.end());
    }
    return all;
  };
  for (ChannelGraph* const graph : {&channels.ring, &channels.tree}) {
    for (std::vector<int>& order : graph->ranks) {
      order = with_followers(order);
    }
  }
  return channels;
}

Result<XmlElement> fill_template(XmlElement machine,
                                 std::span<const HostRank> ranks,
                                 std::span<const NetPort> nets) {
  const auto first_cpu = std::find_if(machine.children.begin(), machine.children.end(),
                                      [](const XmlElement& child) { return child.tag == "cpu"; });
  if (first_cpu == machine.children.end()) {
    return fail(Code::kInvalidUsage, "the topology file has no <cpu>: add one for the ranks");
  }
  std::rotate(machine.children.begin(), first_cpu, std::next(first_cpu));
  std::set<std::string> names;
  for (const NetPort& port : nets) {
    names.insert(port.name);
  }
  drop_ranks_and_nets(machine, names);
  for (size_t number = 0; number < nets.size(); ++number) {
    describe_port(place_of_net(machine, nets[number]), nets[number], static_cast<int>(number));
  }
  for (const HostRank& rank : ranks) {
    add_rank(machine, rank);
  }
  return machine;
}

}  // namespace plexus
