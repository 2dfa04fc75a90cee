// SPDX-License-Identifier: Apache-2.0
#include "core/topo/part.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
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

std::vector<int> numbers_of(std::span<const HostRank> ranks) {
  std::vector<int> numbers;
  for (const HostRank& rank : ranks) {
    numbers.push_back(rank.rank);
  }
  return numbers;
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

// ---- filling in a topology file ----

void drop_ranks_and_nets(XmlElement& element, std::span<const NetPort> nets) {
  std::erase_if(element.children, [&](const XmlElement& child) {
    const std::string* const name = child.find("name");
    const bool known = std::any_of(nets.begin(), nets.end(), [&](const NetPort& port) {
      return name != nullptr && *name == port.name;
    });
    return child.tag == "host" || (child.tag == "net" && !known);
  });
  for (XmlElement& child : element.children) {
    if (child.tag == "gpu") {  // the rank in the job that wrote the file
      std::erase_if(child.attributes, [](const auto& entry) { return entry.first == "rank"; });
    }
    drop_ranks_and_nets(child, nets);
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
  Representatives chosen;
  std::map<std::pair<int, std::string>, size_t> of_place;
  for (const HostRank& rank : ranks) {
    const auto [at, is_new] = of_place.try_emplace({rank.numa, rank.bus_id}, chosen.ranks.size());
    if (is_new) {
      chosen.ranks.push_back(rank.rank);
      chosen.followers.emplace_back();
    } else {
      chosen.followers[at->second].push_back(rank.rank);
    }
  }
  return chosen;
}

Result<PartChannels> search_part(const XmlElement& machine, const PartRequest& request) {
  PartChannels part;
  part.whole = !request.graphs.empty();
  if (part.whole && request.ranks.size() > kGivenRanksMax) {
    return fail(
        Code::kInvalidUsage,
        "NCCL_GRAPH_FILE supports at most {} ranks per host, and this host has {}: unset it",
        kGivenRanksMax, request.ranks.size());
  }
  XmlElement seen = machine;
  keep_ranks(seen,
             part.whole ? numbers_of(request.ranks) : choose_representatives(request.ranks).ranks);
  PLEXUS_TRY(system, build_system(seen));
  system.inter = request.inter;
  compute_paths(system, request.options);
  GivenChannels given;
  if (part.whole) {
    PLEXUS_TRY(parsed, parse_graphs(request.graphs, system, request.options));
    given = std::move(parsed);
  }
  part.found = search_node(system, request.options, given);
  return part;
}

std::string encode(const PartChannels& part, std::span<const HostRank> ranks) {
  std::map<int, int> index_of;
  for (const int rank : part.whole ? numbers_of(ranks) : choose_representatives(ranks).ranks) {
    index_of.emplace(rank, static_cast<int>(index_of.size()));
  }
  ByteWriter writer;
  writer.put(static_cast<int32_t>(part.whole));
  put_graph(writer, part.found.ring, index_of);
  put_graph(writer, part.found.tree, index_of);
  put_graph(writer, part.found.nvls, index_of);
  return writer.take();
}

Result<PartChannels> decode_part(std::string_view bytes, std::span<const HostRank> ranks) {
  ByteReader reader(bytes);
  PartChannels part;
  part.whole = reader.take_between<int32_t>(0, 1) != 0;
  const std::vector<int> numbers =
      part.whole ? numbers_of(ranks) : choose_representatives(ranks).ranks;
  part.found.ring = take_graph(reader, numbers);
  part.found.tree = take_graph(reader, numbers);
  part.found.nvls = take_graph(reader, numbers);
  if (!reader.whole() || part.found.ring.channels() == 0 || part.found.tree.channels() == 0 ||
      part.found.ring.pattern != Pattern::kRing || !is_tree(part.found.tree.pattern) ||
      (part.found.nvls.channels() > 0 && part.found.nvls.pattern != Pattern::kNvls) ||
      !has_each_once(part.found.ring, numbers) || !has_each_once(part.found.tree, numbers)) {
    return fail(Code::kInvalidUsage,
                "the topology sent by the host of rank {} ({} bytes) is malformed: use the same "
                "version of Plexus on all ranks",
                ranks.empty() ? -1 : ranks.front().rank, bytes.size());
  }
  return part;
}

NodeChannels expand(const PartChannels& part, std::span<const HostRank> ranks) {
  NodeChannels channels = part.found;
  if (part.whole) {
    return channels;
  }
  const Representatives chosen = choose_representatives(ranks);
  const auto with_followers = [&](const std::vector<int>& order) {
    std::vector<int> all;
    all.reserve(ranks.size());
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
  drop_ranks_and_nets(machine, nets);
  for (size_t number = 0; number < nets.size(); ++number) {
    describe_port(place_of_net(machine, nets[number]), nets[number], static_cast<int>(number));
  }
  for (const HostRank& rank : ranks) {
    add_rank(machine, rank);
  }
  return machine;
}

}  // namespace plexus
