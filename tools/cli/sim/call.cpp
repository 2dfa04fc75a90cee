// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/sim/call.hpp"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "core/datacenter/datacenter_map.hpp"
#include "core/schedule/partition.hpp"
#include "tools/cli/commands.hpp"
#include "tools/sim/trace.hpp"

namespace plexus {
namespace {

constexpr double kBytesPerUsOfGbit = 125;
constexpr double kBytesPerUsOfGb = 1000;

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

/// By datacenter: the one above it in trees, all joined by equal links.
std::vector<int> above_of(const std::vector<int>& datacenters) {
  return datacenters.empty() ? std::vector<int>{} : find_tree(datacenters.back() + 1);
}

SimJob job_of(const SimOptions& options,
              const Algorithm& algorithm,
              uint64_t bytes,
              const Fabric* fabric) {
  const bool on_fabric = fabric != nullptr;
  SimJob job;
  job.algorithm = &algorithm;
  job.nranks = options.nranks;
  job.ranks_per_node = options.ranks_per_node;
  const uint64_t blocks =
      is_blocked(algorithm.collective) ? static_cast<uint64_t>(options.nranks) : 1;
  job.element_bytes = 4;
  job.count = std::max<uint64_t>(1, bytes / job.element_bytes / blocks);
  job.root = options.root;
  job.channels = options.channels > 0 ? options.channels : algorithm.variants;
  job.slot_bytes = static_cast<uint32_t>(options.slot_bytes);
  job.protocol = options.protocol;
  job.costs.near = {.latency_us = options.near_latency_us,
                    .us_per_byte = 1 / (options.near_gbit_per_s * kBytesPerUsOfGbit),
                    .message_us = options.message_us};
  job.costs.far = {.latency_us = options.latency_us,
                   .us_per_byte = on_fabric ? 0 : 1 / (options.gbit_per_s * kBytesPerUsOfGbit),
                   .message_us = options.message_us};
  // a fabric has the latency of its cables, also between datacenters
  job.costs.wide = {
      .latency_us = on_fabric ? options.latency_us : options.wide_latency_us,
      .us_per_byte = on_fabric ? 0 : 1 / (options.wide_gbit_per_s * kBytesPerUsOfGbit),
      .message_us = options.message_us};
  job.datacenters = datacenters_of(options, fabric);
  job.above = above_of(job.datacenters);
  job.costs.reduce_us_per_byte =
      options.reduce_gb_per_s > 0 ? 1 / (options.reduce_gb_per_s * kBytesPerUsOfGb) : 0;
  return job;
}

}  // namespace

double SimRow::algbw_gb_per_s() const {
  return static_cast<double>(bytes) / (result.time_us * kBytesPerUsOfGb);
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
  order.above = above_of(order.datacenters);
  return order;
}

Result<SimRow> simulate_call(const SimOptions& options,
                             const Algorithm& algorithm,
                             uint64_t bytes,
                             const Fabric* fabric) {
  const SimJob job = job_of(options, algorithm, bytes, fabric);
  PLEXUS_TRY(network, fabric == nullptr && options.trace.empty() ? make_symmetric_network(job)
                                                                 : make_network(job));
  SimTrace trace(network, fabric);
  PLEXUS_TRY(result, simulate(network, fabric, options.trace.empty() ? SimWatch{} : trace.watch()));
  if (!options.trace.empty()) {
    PLEXUS_TRY(write_json(options.trace, trace.format()));
  }
  return SimRow{.bytes = bytes,
                .algorithm = algorithm.family,
                .channels = job.channels,
                .result = std::move(result),
                .simulated = network.ranks.size()};
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
