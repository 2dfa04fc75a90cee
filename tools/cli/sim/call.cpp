// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/sim/call.hpp"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/units.hpp"
#include "core/datacenter/datacenter_map.hpp"
#include "core/topo/join.hpp"
#include "core/tuning/partition.hpp"
#include "kernels/layout/fifo.hpp"
#include "tools/cli/commands.hpp"
#include "tools/sim/trace.hpp"

namespace plexus {
namespace {

constexpr double kBytesPerUsOfGbit = 125;
constexpr double kBytesPerUsOfGb = 1000;
constexpr double kNoLatencyUs = 1e-4;
// Of a calibrated job with so many ranks all are simulated, with every chunk as long as it is.
constexpr int kExactRanksMax = 1024;
// The time of ranks that share cores is the mean of so many draws.
constexpr uint32_t kOrders = 8;

/// Of the inputs and outputs that `ranks` ranks of one node use, out of place, one of them the
/// root. `bytes`: of the larger one of a rank.
uint64_t buffers_bytes(Collective collective, uint64_t bytes, int nranks, uint64_t ranks) {
  const uint64_t block = bytes / static_cast<uint64_t>(nranks);
  switch (collective) {
    case Collective::kBroadcast:
    case Collective::kReduce:
      return (ranks + 1) * bytes;
    case Collective::kGather:
    case Collective::kScatter:
      return bytes + ranks * block;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      return ranks * (bytes + block);
    default:
      return ranks * 2 * bytes;
  }
}

/// By rank: those of the fabric, or equal parts; empty: one.
std::vector<int> datacenters_of(const SimOptions& options, const Fabric* fabric) {
  std::vector<int> datacenters;
  const int nodes = (options.nranks + options.ranks_per_node - 1) / options.ranks_per_node;
  for (int rank = 0; rank < options.nranks; ++rank) {
    const int node = rank / options.ranks_per_node;
    datacenters.push_back(fabric != nullptr
                              ? fabric->datacenter_of(std::min(node, fabric->nodes() - 1))
                              : static_cast<int>(int64_t{node} * options.datacenters / nodes));
  }
  return datacenters.back() == datacenters.front() ? std::vector<int>{} : datacenters;
}

/// The orders of the channels as the library makes them (core/topo): each leaves a node by another
/// of its ranks.
Result<std::vector<ChannelOrder>> join_orders(const SimOptions& options, const SimJob& job) {
  NodeChannels node;
  for (int channel = 0; channel < job.ranks_per_node; ++channel) {
    std::vector<int> chain;
    for (int place = 1; place <= job.ranks_per_node; ++place) {
      chain.push_back((channel + place) % job.ranks_per_node);
    }
    node.ring.ranks.push_back(chain);
    node.tree.ranks.push_back(std::move(chain));
  }
  std::vector<ClusterNode> nodes;
  JoinOptions join{.limits = {.min = job.channels, .max = job.channels}, .datacenters = {}};
  join.datacenters.scatter = *options.scatters;
  join.datacenters.every_node = true;
  for (int first = 0; first < job.nranks; first += job.ranks_per_node) {
    nodes.push_back({.found = &node, .rank_offset = first});
    join.datacenters.of_node.push_back(job.datacenters[static_cast<size_t>(first)]);
  }
  PLEXUS_TRY(joined, join_nodes(nodes, join));
  std::vector<ChannelOrder> orders;
  for (std::vector<int>& ring : joined.rings) {
    // a node's ranks are together, also around the end
    const auto node_at = [&](size_t place) { return ring[place] / job.ranks_per_node; };
    while (node_at(ring.size() - 1) == node_at(0)) {
      std::rotate(ring.begin(), ring.end() - 1, ring.end());
    }
    ChannelOrder& order = orders.emplace_back();
    for (size_t place = 0; place < ring.size(); ++place) {
      order.datacenters.push_back(job.datacenters[static_cast<size_t>(ring[place])]);
      if (place == 0 || node_at(place) != node_at(place - 1)) {
        order.nodes.push_back(static_cast<int>(place));
      }
    }
    order.ring = std::move(ring);
    order.above = job.above;
  }
  return orders;
}

SimJob job_of(const SimOptions& options,
              const Algorithm& algorithm,
              uint64_t bytes,
              const Fabric* fabric) {
  const bool on_fabric = fabric != nullptr;
  ChannelOrder order = order_of(options, fabric);
  SimJob job;
  job.algorithm = &algorithm;
  job.nranks = options.nranks;
  job.ranks_per_node = options.ranks_per_node;
  const uint64_t blocks =
      is_blocked(algorithm.collective) ? static_cast<uint64_t>(options.nranks) : 1;
  job.element_bytes = 4;
  job.count = std::max<uint64_t>(1, bytes / job.element_bytes / blocks);
  job.root = options.root;
  // host ranks use one channel, others as many as the algorithm has different programs
  job.channels = options.channels > 0              ? options.channels
                 : options.calibration.has_value() ? 1
                                                   : algorithm.variants;
  job.slot_bytes = slot_bytes_of(options);
  job.protocol = options.protocol;
  job.costs = costs_of(options, on_fabric);
  job.calls = options.calls;
  job.datacenters = std::move(order.datacenters);
  job.above = std::move(order.above);
  if (options.calibration.has_value()) {
    const uint64_t ranks = static_cast<uint64_t>(std::min(options.nranks, options.ranks_per_node));
    job.cores = options.cores > 0 ? options.cores : options.calibration->cores;
    job.turn_us =
        options.near_is_net ? options.calibration->net_turn_us : options.calibration->turn_us;
    job.are_bound = options.are_bound;
    job.node_bytes = buffers_bytes(algorithm.collective, bytes, options.nranks, ranks);
    job.is_one_way = is_rooted(algorithm.collective);
    const SimWork& work =
        options.nranks > options.ranks_per_node ? job.costs.far.work : job.costs.near.work;
    job.call_us = (job.is_one_way ? work.one_way : work.both_ways).call_us;
    job.exact_spans = options.nranks <= kExactRanksMax;
  }
  return job;
}

/// Of a node: those of all its connections are used in turn, call after call.
uint64_t slots_bytes(const SimNetwork& network) {
  const SimJob& job = network.job;
  const uint64_t nodes =
      div_ceil(static_cast<uint64_t>(job.nranks), static_cast<uint64_t>(job.ranks_per_node));
  uint64_t bytes = 0;
  for (const SimConnection& connection : network.connections) {
    const SimLane& lane = network.ranks[connection.source].lanes[connection.send_lane];
    bytes += kSlots *
             std::min<uint64_t>(job.slot_bytes,
                                chunk_bytes(network.geometries[static_cast<size_t>(lane.channel)],
                                            0, job.element_bytes));
  }
  return bytes / nodes;
}

/// Whether all ranks are simulated, and not one of each class.
bool needs_all_ranks(const SimOptions& options, const SimJob& job, const Fabric* fabric) {
  return fabric != nullptr || !options.trace.empty() || options.faults.has_value() ||
         job.exact_spans || job.shares_cores();
}

/// Whether what the job uses was measured.
Result<void> check_calibration(const SimOptions& options) {
  const bool uses_net = options.near_is_net || options.nranks > options.ranks_per_node;
  if (options.calibration.has_value() && uses_net && options.calibration->net.slot_bytes == 0) {
    return fail(Code::kInvalidArgument,
                "--calibration: the file has no costs of sockets: make it with `plexus tune "
                "--only-messages --net`");
  }
  return ok();
}

Result<void> set_orders(const SimOptions& options, SimJob& job) {
  if (!options.scatters.has_value()) {
    return ok();
  }
  if (job.datacenters.empty() || job.nranks % job.ranks_per_node != 0) {
    return fail(Code::kInvalidArgument,
                "--scatter: expects several datacenters (--dcs), and as many ranks on each node");
  }
  PLEXUS_TRY(orders, join_orders(options, job));
  job.orders = std::move(orders);
  return ok();
}

/// `job`, with what else the options say.
Result<SimRow> simulate_job(const SimOptions& options,
                            SimJob job,
                            uint64_t bytes,
                            const Fabric* fabric) {
  PLEXUS_TRY(check_calibration(options));
  PLEXUS_TRY(set_orders(options, job));
  PLEXUS_TRY(network, needs_all_ranks(options, job, fabric) ? make_network(job)
                                                            : make_symmetric_network(job));
  if (options.calibration.has_value()) {
    network.job.node_bytes += slots_bytes(network);
  }
  SimTrace trace(network, fabric);
  const SimFaults* const faults = options.faults.has_value() ? &*options.faults : nullptr;
  double others_us = 0;
  const uint32_t orders = job.shares_cores() ? kOrders : 1;
  for (uint32_t order = 1; order < orders; ++order) {
    network.job.shuffle = order;
    PLEXUS_TRY(other, simulate(network, fabric, {}, faults));
    others_us += other.time_us;
  }
  network.job.shuffle = orders > 1 ? orders : 0;
  PLEXUS_TRY(result,
             simulate(network, fabric, options.trace.empty() ? SimWatch{} : trace.watch(), faults));
  if (!options.trace.empty()) {
    PLEXUS_TRY(write_output(options.trace, trace.format()));
  }
  result.time_us = (result.time_us + others_us) / orders / options.calls;
  std::vector<double> by_node(
      static_cast<size_t>((job.nranks + job.ranks_per_node - 1) / job.ranks_per_node));
  for (int rank = 0; rank < job.nranks; ++rank) {
    const auto place = static_cast<size_t>(rank);
    by_node[place / static_cast<size_t>(job.ranks_per_node)] +=
        result.wide_bytes[network.class_of.empty() ? place : network.class_of[place]];
  }
  return SimRow{
      .bytes = bytes,
      .algorithm = job.algorithm->family,
      .channels = job.channels,
      .result = std::move(result),
      .simulated = network.ranks.size(),
      .node_bytes = network.job.node_bytes,
      .node_wide_bytes = *std::max_element(by_node.begin(), by_node.end()) / options.calls};
}

}  // namespace

SimCosts costs_of(const SimOptions& options, bool on_fabric) {
  const auto us_per_byte = [](double gbit_per_s) {
    return gbit_per_s > 0 ? 1 / (gbit_per_s * kBytesPerUsOfGbit) : 0;
  };
  // What was measured has the latency and the copies of processes of a host: no link adds to them
  // but those of the flags.
  const bool measured = options.calibration.has_value();
  const auto latency_or = [measured](const std::optional<double>& flag, double otherwise) {
    return flag.value_or(measured ? kNoLatencyUs : otherwise);
  };
  const auto rate_or = [measured](const std::optional<double>& flag, double otherwise) {
    return flag.value_or(measured ? 0 : otherwise);
  };
  SimCosts costs;
  costs.near = {
      .latency_us = latency_or(options.near_latency_us, SimOptions::kNearLatencyUs),
      .us_per_byte = us_per_byte(rate_or(options.near_gbit_per_s, SimOptions::kNearGbitPerS)),
      .message_us = options.message_us};
  costs.far = {.latency_us = latency_or(options.latency_us, SimOptions::kLatencyUs),
               .us_per_byte =
                   on_fabric ? 0 : us_per_byte(rate_or(options.gbit_per_s, SimOptions::kGbitPerS)),
               .message_us = options.message_us};
  // a fabric has the latency of its cables, also between datacenters
  costs.wide = {.latency_us = on_fabric ? costs.far.latency_us : options.wide_latency_us,
                .us_per_byte = on_fabric ? 0 : us_per_byte(options.wide_gbit_per_s),
                .message_us = options.message_us};
  costs.reduce_us_per_byte =
      options.reduce_gb_per_s > 0 ? 1 / (options.reduce_gb_per_s * kBytesPerUsOfGb) : 0;
  if (measured) {
    costs.near.work = options.near_is_net ? options.calibration->net : options.calibration->host;
    costs.far.work = costs.wide.work = options.calibration->net;
  }
  return costs;
}

uint32_t slot_bytes_of(const SimOptions& options) {
  const bool in_memory = options.calibration.has_value() && !options.near_is_net &&
                         options.nranks <= options.ranks_per_node;
  return static_cast<uint32_t>(
      options.slot_bytes.value_or(in_memory ? kSlotBytesOfMemory : kSlotBytesOfNetwork));
}

double SimRow::algbw_gb_per_s() const {
  return static_cast<double>(bytes) / (result.time_us * kBytesPerUsOfGb);
}

double SimRow::node_wide_gbit_per_s() const {
  return node_wide_bytes / (result.time_us * kBytesPerUsOfGbit);
}

Result<void> SimRow::check_ends() const {
  if (result.waits.empty()) {
    return ok();
  }
  constexpr size_t kNamed = 8;
  std::vector<std::string> named;
  for (const SimWait& wait : result.waits) {
    std::string text = wait.receives
                           ? fmt::format("rank {} for a message of rank {}", wait.rank, wait.peer)
                           : fmt::format("rank {} for rank {} to take one", wait.rank, wait.peer);
    if (named.size() < kNamed && (named.empty() || named.back() != text)) {
      named.push_back(std::move(text));
    }
  }
  return fail(
      Code::kRemoteError,
      "{} of {} bytes never ends, because a link is cut: {} lanes wait, {}{} (in a real run "
      "the ranks get an error)",
      algorithm, bytes, result.waits.size(), fmt::join(named, ", "),
      result.waits.size() > kNamed ? ", ..." : "");
}

ChannelOrder order_of(const SimOptions& options, const Fabric* fabric) {
  ChannelOrder order;
  for (int rank = 0; rank < options.nranks; ++rank) {
    order.ring.push_back(rank);
    if (rank % options.ranks_per_node == 0) {
      order.nodes.push_back(rank);
    }
  }
  order.datacenters = datacenters_of(options, fabric);
  if (!order.datacenters.empty()) {
    order.above = find_tree(order.datacenters.back() + 1);  // all are joined by equal links
  }
  return order;
}

Result<SimRow> simulate_call(const SimOptions& options,
                             const Algorithm& algorithm,
                             uint64_t bytes,
                             const Fabric* fabric) {
  return simulate_job(options, job_of(options, algorithm, bytes, fabric), bytes, fabric);
}

Result<std::vector<std::vector<uint64_t>>> count_bytes_by_link(const SimOptions& options,
                                                               const Algorithm& algorithm,
                                                               uint64_t bytes,
                                                               const Fabric* fabric) {
  SimJob job = job_of(options, algorithm, bytes, fabric);
  const int together = job.nranks <= kMappedMax ? 1 : job.ranks_per_node;
  const int places = (job.nranks + together - 1) / together;
  if (places > kMappedMax) {
    return fail(Code::kInvalidArgument,
                "--links maps at most {} ranks, or nodes (--ranks-per-node), and these are {}",
                kMappedMax, places);
  }
  job.exact_spans = true;
  PLEXUS_TRY(set_orders(options, job));
  PLEXUS_TRY(network, make_network(job));
  std::vector<std::vector<uint64_t>> sent(static_cast<size_t>(places),
                                          std::vector<uint64_t>(static_cast<size_t>(places)));
  const std::vector<uint64_t> of_connections = count_sent_bytes(network);
  for (size_t i = 0; i < of_connections.size(); ++i) {
    const SimConnection& connection = network.connections[i];
    const auto per_place = static_cast<uint32_t>(together);
    sent[connection.source / per_place][connection.target / per_place] += of_connections[i];
  }
  return sent;
}

Result<SimRow> simulate_exchanges(const SimOptions& options,
                                  const std::vector<WorkloadExchange>& exchanges,
                                  const Fabric* fabric) {
  uint64_t bytes = 0;
  for (const WorkloadExchange& each : exchanges) {
    bytes += each.bytes;
  }
  SimJob job = job_of(options, *find_algorithm("send"), bytes, fabric);
  job.channels = static_cast<int>(exchanges.size());
  for (const WorkloadExchange& each : exchanges) {
    job.exchanges.push_back({.distance = each.distance,
                             .wraps = each.wraps,
                             .count = div_ceil(each.bytes, uint64_t{job.element_bytes})});
  }
  return simulate_job(options, std::move(job), bytes, fabric);
}

Result<std::vector<const Algorithm*>> list_algorithms(const SimOptions& options) {
  std::vector<const Algorithm*> chosen;
  std::vector<std::string> known;
  for (const Algorithm& row : algorithms()) {
    if (row.collective != options.collective || row.network_cost != nullptr) {
      continue;
    }
    known.emplace_back(row.family);
    const bool is_named = std::find(options.families.begin(), options.families.end(), row.family) !=
                          options.families.end();
    if (is_named || (options.families.empty() && options.nranks <= row.nranks_max &&
                     (!row.for_datacenters || options.datacenters > 1))) {
      chosen.push_back(&row);
    }
  }
  for (const std::string& family : options.families) {
    if (std::find(known.begin(), known.end(), family) == known.end()) {
      return fail(Code::kInvalidArgument, "--algo: '{}' is not an algorithm for {}; there are {}",
                  family, name(options.collective), fmt::join(known, ", "));
    }
  }
  return chosen;
}

}  // namespace plexus
