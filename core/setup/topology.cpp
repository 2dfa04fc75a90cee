// SPDX-License-Identifier: Apache-2.0
#include "core/setup/topology.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "core/base/bytes.hpp"
#include "core/base/log.hpp"
#include "core/peers/reach.hpp"
#include "core/setup/datacenters.hpp"
#include "core/setup/machine.hpp"
#include "core/topo/graph_file.hpp"
#include "core/topo/join.hpp"
#include "core/topo/machine_xml.hpp"
#include "core/topo/settings.hpp"
#include "core/topo/system.hpp"
#include "guest/assert.hpp"
#include "guest/file.hpp"

namespace plexus {
namespace {

Result<std::string> read_text(const std::string& file_name, const char* setting) {
  FileText file = read_regular_file(file_name);
  if (file.text.empty() || !file.refusal.empty()) {
    return fail(Code::kInvalidArgument, "{} cannot be read: {}",
                describe_setting(setting, file_name),
                file.refusal.empty() ? "it is empty" : file.refusal);
  }
  return std::move(file.text);
}

Result<void> write_text(const std::string& file_name,
                        const char* setting,
                        const std::string& text) {
  if (const auto refusal = write_text_file(file_name, text, O_TRUNC); !refusal.empty()) {
    return fail(Code::kInvalidArgument, "{} cannot be written: {}",
                describe_setting(setting, file_name), refusal);
  }
  return ok();
}

Result<void> dump(const TopologyInput& input,
                  const XmlElement& machine,
                  const PartChannels& part,
                  bool inter) {
  const Config& config = *input.config;
  if (!config.topo_dump_file.empty()) {
    PLEXUS_TRY(write_text(config.topo_dump_file, "NCCL_TOPO_DUMP_FILE", format_xml(machine)));
  }
  if (!config.graph_dump_file.empty()) {
    PLEXUS_TRY(system, build_system(machine));
    system.inter = inter;
    PLEXUS_TRY(write_text(config.graph_dump_file, "NCCL_GRAPH_DUMP_FILE",
                          format_graphs(expand(part), system)));
  }
  return ok();
}

std::set<std::pair<int, int>> pairs_without_p2p(std::span<const PeerInfo> infos,
                                                const std::vector<HostRank>& ranks) {
  std::set<std::pair<int, int>> pairs;
  for (const int a : choose_representatives(ranks).ranks) {
    for (const int b : choose_representatives(ranks).ranks) {
      const PeerInfo& first = infos[static_cast<size_t>(a)];
      const PeerInfo& second = infos[static_cast<size_t>(b)];
      if (a < b && first.on_cuda() && second.on_cuda() && !reach_each_other(first, second)) {
        pairs.emplace(a, b);
      }
    }
  }
  return pairs;
}

Result<std::vector<PartChannels>> search(const TopologyInput& input,
                                         const std::vector<HostRank>& ranks,
                                         bool inter) {
  PartRequest request{.ranks = ranks, .inter = inter, .options = {}, .graphs = {}};
  PLEXUS_TRY(options, read_topo_options(*input.config));
  request.machine_from = describe_topo_file(*input.config);
  request.options = options;
  request.options.shm_disable = false;  // `ranks` can reach each other by definition
  request.options.reach.without_p2p = pairs_without_p2p(input.infos, ranks);
  if (!input.config->graph_file.empty()) {
    PLEXUS_TRY(graphs, read_text(input.config->graph_file, "NCCL_GRAPH_FILE"));
    request.graphs = std::move(graphs);
    request.graphs_from = describe_setting("NCCL_GRAPH_FILE", input.config->graph_file);
  }
  PLEXUS_TRY(machine, describe_host(
                          ranks, {.config = input.config, .net = input.net, .cache = input.cache}));
  PLEXUS_TRY(found, search_host(machine, request));
  for (const std::string& warning : found.warnings) {
    PLEXUS_WARN("{}", warning);
  }
  for (const PartChannels& part : found.parts) {
    if (part.ranks.front().rank == 0) {
      PLEXUS_TRY(dump(input, machine, part, inter || found.parts.size() > 1));
    }
  }
  return std::move(found.parts);
}

/// The ring rotated to begin where the part of its first rank begins.
ChannelOrder order_of(std::vector<int> ring, const std::vector<int>& part_of) {
  const auto part_at = [&](size_t place) { return part_of[static_cast<size_t>(ring[place])]; };
  size_t first = ring.size();
  while (first > 1 && part_at(first - 1) == part_at(0)) {
    --first;
  }
  if (first > 1) {
    std::rotate(ring.begin(), ring.begin() + static_cast<std::ptrdiff_t>(first), ring.end());
  }
  ChannelOrder order{.ring = std::move(ring), .nodes = {0}, .datacenters = {}};
  for (size_t place = 1; place < order.ring.size(); ++place) {
    if (part_of[static_cast<size_t>(order.ring[place])] !=
        part_of[static_cast<size_t>(order.ring[place - 1])]) {
      order.nodes.push_back(static_cast<int>(place));
    }
  }
  return order;
}

DatacenterSource source_of(const TopologyInput& input, int rank) {
  const std::string& hostid = input.config->hostid;
  return {.config = input.config,
          .net = input.net,
          .host = hostid.empty() ? input.infos[static_cast<size_t>(rank)].host : hostid};
}

Result<CommTopology> compute_in_one_process(const TopologyInput& input) {
  const auto groups = group_by_reach(input.infos);
  std::vector<std::vector<PartChannels>> channels;
  for (const std::vector<HostRank>& ranks : groups) {
    PLEXUS_TRY(parts, search(input, ranks, groups.size() > 1));
    channels.push_back(std::move(parts));
  }
  const DatacenterSource source = source_of(input, input.rank);
  PLEXUS_TRY(location, find_location(source));
  // A process is in one place: its location applies to all groups.
  const std::vector<DatacenterNode> sites(
      groups.size(),
      DatacenterNode{.host = source.host, .location = std::move(location), .answers = {}});
  return join_parts(channels, sites);
}

// ---- a leader's message: the length of its location, the location, its parts' channels ----

std::string pack(const Location& location, const std::string& parts) {
  ByteWriter writer;
  writer.put_text<uint32_t>(encode(location));
  writer.put_bytes(parts);
  return writer.take();
}

struct Unpacked {
  std::string_view location;
  std::string_view parts;
};

Result<Unpacked> unpack(std::string_view bytes) {
  ByteReader reader(bytes);
  const std::string_view location =
      reader.take_text<uint32_t>(std::numeric_limits<uint32_t>::max());
  if (reader.broken()) {
    return fail(Code::kRemoteError,
                "the host description sent by another rank is malformed: use the same version of "
                "Plexus on all ranks");
  }
  return Unpacked{.location = location, .parts = reader.rest()};
}

/// The locations by group, without the networks' answers.
Result<std::vector<DatacenterNode>> read_locations(const TopologyInput& input,
                                                   const HostGroups& groups,
                                                   const Gathered& blobs) {
  std::vector<DatacenterNode> sites;
  for (const std::vector<HostRank>& ranks : groups) {
    const auto leader = static_cast<size_t>(ranks.front().rank);
    PLEXUS_TRY(bytes, unpack(blobs[leader]));
    PLEXUS_TRY(location, decode_location(bytes.location));
    sites.push_back(
        {.host = input.infos[leader].host, .location = std::move(location), .answers = {}});
  }
  return sites;
}

/// If the devices are in several fabrics, every leader asks its network about its own ids and sends
/// the answers to the others. Collective in that case.
Result<void> exchange_answers(const TopologyInput& input,
                              const HostGroups& groups,
                              std::vector<DatacenterNode>& sites) {
  const std::vector<uint64_t> ids = distinct_fabric_ids(sites);
  const bool by_file = std::any_of(sites.begin(), sites.end(), [](const DatacenterNode& node) {
    return !node.location.datacenter.empty();
  });
  if (ids.size() < 2 || by_file) {
    return ok();
  }
  std::string blob;
  for (size_t group = 0; group < groups.size(); ++group) {
    if (groups[group].front().rank == input.rank) {
      PLEXUS_TRY(answers,
                 ask_network(source_of(input, input.rank), sites[group].location.fabric_ids, ids));
      blob = encode(answers);
    }
  }
  PLEXUS_TRY(blobs, input.exchange->all_gather(std::move(blob), input.give_up));
  for (size_t group = 0; group < groups.size(); ++group) {
    PLEXUS_TRY(answers, decode_answers(blobs[static_cast<size_t>(groups[group].front().rank)]));
    sites[group].answers = std::move(answers);
  }
  return ok();
}

Result<CommTopology> join_blobs(const TopologyInput& input,
                                const Gathered& blobs,
                                std::span<const DatacenterNode> sites) {
  std::vector<std::vector<PartChannels>> channels;
  for (const std::vector<HostRank>& ranks : group_by_reach(input.infos)) {
    PLEXUS_TRY(bytes, unpack(blobs[static_cast<size_t>(ranks.front().rank)]));
    PLEXUS_TRY(parts, decode_parts(bytes.parts, ranks));
    channels.push_back(std::move(parts));
  }
  return join_parts(channels, sites);
}

/// Options for several datacenters: rings through them, with enough channels to cross at every
/// host.
JoinOptions join_options(const DatacenterMap& map, std::span<const DatacenterNode> sites) {
  constexpr int kOrdersMax = 16;
  JoinOptions options;
  if (map.count() < 2) {
    return options;
  }
  options.datacenters = {.of_node = map.of_node,
                         .scatter = sites.front().location.scatter,
                         .device_of_rank0 = 0,
                         .visits = map.visits,
                         .every_node = true};
  for (int datacenter = 0; datacenter < static_cast<int>(map.count()); ++datacenter) {
    const auto nodes =
        static_cast<int>(std::count(map.of_node.begin(), map.of_node.end(), datacenter));
    options.limits.min = std::max(options.limits.min, std::min(nodes, kOrdersMax));
  }
  return options;
}

}  // namespace

Result<XmlElement> TopologyCache::describe(const DetectRequest& request) {
  const std::lock_guard lock(machine_mutex_);
  if (!machine_.has_value()) {
    PLEXUS_TRY(machine, Machine::load());
    machine_ = std::move(machine);
  }
  return machine_->describe(request);
}

HostGroups group_by_reach(std::span<const PeerInfo> infos) {
  HostGroups groups;
  for (const std::vector<int>& ranks : group_ranks_by_reach(infos)) {
    std::vector<HostRank>& group = groups.emplace_back();
    for (const int rank : ranks) {
      const PeerInfo& info = infos[static_cast<size_t>(rank)];
      group.push_back({.rank = rank,
                       .numa = info.numa,
                       .bus_id = info.on_cuda() ? info.bus_id : "",
                       .device = info.device,
                       .sm = info.device_sm});
    }
  }
  return groups;
}

Result<CommTopology> join_parts(std::span<const std::vector<PartChannels>> channels,
                                std::span<const DatacenterNode> sites) {
  std::vector<DatacenterNode> site_by_part;
  std::vector<NodeChannels> found;
  std::vector<ClusterNode> nodes;
  std::vector<int> part_of;
  for (size_t group = 0; group < channels.size(); ++group) {
    for (const PartChannels& part : channels[group]) {
      for (const HostRank& rank : part.ranks) {
        part_of.resize(std::max(part_of.size(), static_cast<size_t>(rank.rank) + 1));
        part_of[static_cast<size_t>(rank.rank)] = static_cast<int>(found.size());
      }
      found.push_back(expand(part));
      site_by_part.push_back(sites[group]);
    }
  }
  PLEXUS_TRY(map, make_datacenter_map(site_by_part));
  nodes.reserve(found.size());
  for (const NodeChannels& node : found) {
    nodes.push_back({.found = &node, .rank_offset = 0, .sm_min = 0});
  }
  PLEXUS_TRY(joined, join_nodes(nodes, join_options(map, site_by_part)));
  CommTopology topology;
  topology.parts = static_cast<int>(found.size());
  const bool xdc = map.count() > 1;
  for (const int part : part_of) {
    topology.datacenter_of.push_back(map.of_node[static_cast<size_t>(part)]);
  }
  // Inside one datacenter, additional channels repeat those found (join.hpp).
  const int orders = xdc ? joined.channels() : std::min(joined.search_channels, joined.channels());
  for (int channel = 0; channel < orders; ++channel) {
    ChannelOrder order = order_of(std::move(joined.rings[static_cast<size_t>(channel)]), part_of);
    PLEXUS_DCHECK(order.ring.size() == part_of.size(), channel, order.ring.size(), part_of.size());
    for (const int rank : order.ring) {
      if (xdc) {
        order.datacenters.push_back(topology.datacenter_of[static_cast<size_t>(rank)]);
      }
    }
    if (xdc) {
      order.above = map.above;
    }
    topology.orders.push_back(std::move(order));
  }
  PLEXUS_DCHECK(!topology.orders.empty() && topology.datacenter_of.size() == part_of.size(), orders,
                part_of.size());
  topology.near_gb_per_s = static_cast<double>(joined.ring.intra_gb_per_s) * joined.search_channels;
  topology.nvlink = joined.ring.intra_type <= PathType::kNvb;
  topology.datacenters = std::move(map);
  topology.costs =
      std::make_shared<const LoopCosts>(topology.orders.front(), topology.datacenters.meshed());
  const bool all_equal =
      std::all_of(topology.orders.begin(), topology.orders.end(),
                  [&](const ChannelOrder& order) { return order == topology.orders.front(); });
  if (all_equal) {
    topology.orders.resize(1);
  }
  return topology;
}

Result<std::shared_ptr<const CommTopology>> agree_on_topology(const TopologyInput& input) {
  const auto& infos = input.infos;
  if (are_in_one_process(infos)) {
    return input.cache->of_groups.find_or_make(input.group,
                                               [&] { return compute_in_one_process(input); });
  }
  PLEXUS_TRY(shared_groups, input.cache->host_groups.find_or_make(input.group, [&] {
    return Result<HostGroups>(group_by_reach(infos));
  }));
  const HostGroups& groups = *shared_groups;
  std::string blob;
  const auto mine = std::find_if(groups.begin(), groups.end(), [&](const auto& ranks) {
    return ranks.front().rank == input.rank;
  });
  if (mine != groups.end()) {  // this rank leads its group
    PLEXUS_TRY(parts, search(input, *mine, groups.size() > 1));
    PLEXUS_TRY(location, find_location(source_of(input, input.rank)));
    blob = pack(location, encode(parts, *mine));
  }
  PLEXUS_TRY(blobs, input.exchange->all_gather(std::move(blob), input.give_up));
  PLEXUS_TRY(sites, read_locations(input, groups, blobs));
  PLEXUS_TRY(exchange_answers(input, groups, sites));
  return input.cache->of_groups.find_or_make(input.group,
                                             [&] { return join_blobs(input, blobs, sites); });
}

}  // namespace plexus
