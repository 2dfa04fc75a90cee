// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/sim/policy.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/config.hpp"
#include "core/base/text.hpp"
#include "core/schedule/choose_algorithm.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/flags.hpp"

namespace plexus {
namespace {

plexus_tuner_link_t describe_link(uint64_t count, const SimLink& cost) {
  constexpr double kNsOfUs = 1000;
  constexpr double kMbitPerSOfBytesPerUs = 8;
  plexus_tuner_link_t link{};
  link.count = static_cast<uint32_t>(std::min<uint64_t>(count, UINT32_MAX));
  link.latency_ns = static_cast<uint64_t>(cost.latency_us * kNsOfUs);  // 0: unknown
  link.bandwidth_mbit_per_s = 0;                                       // not limited
  if (cost.us_per_byte > 0) {
    link.bandwidth_mbit_per_s =
        static_cast<uint64_t>(std::max(1.0, kMbitPerSOfBytesPerUs / cost.us_per_byte));
  }
  return link;
}

/// The cluster as tuners are told of it: each rank has a core of its own.
plexus_tuner_comm_t describe_cluster(const SimOptions& options, const ChannelOrder& order) {
  const auto nranks = static_cast<uint64_t>(options.nranks);
  const auto per_node = static_cast<uint64_t>(std::min(options.ranks_per_node, options.nranks));
  plexus_tuner_comm_t comm{};
  comm.struct_size = sizeof(comm);
  comm.nranks = static_cast<uint32_t>(nranks);
  comm.nnodes = static_cast<uint32_t>(order.nodes.size());
  comm.ndatacenters = 1;
  comm.ranks_per_node_max = static_cast<uint32_t>(per_node);
  comm.cores_per_node_min = static_cast<uint32_t>(per_node);
  comm.comm_id = 1;
  comm.slot_bytes = slot_bytes_of(options);
  const uint64_t all = nranks * (nranks - 1) / 2;
  const uint64_t near = nranks * (per_node - 1) / 2;
  uint64_t wide = 0;
  if (!order.datacenters.empty()) {
    std::vector<uint64_t> sizes;
    for (const int datacenter : order.datacenters) {
      sizes.resize(std::max(sizes.size(), static_cast<size_t>(datacenter) + 1));
      ++sizes[static_cast<size_t>(datacenter)];
    }
    comm.ndatacenters = static_cast<uint32_t>(sizes.size());
    for (const uint64_t size : sizes) {
      wide += size * (nranks - size) / 2;
    }
  }
  const SimCosts costs = costs_of(options, false);
  comm.links[PLEXUS_LINK_HOST] = describe_link(near, costs.near);
  comm.links[PLEXUS_LINK_NET] = describe_link(all - std::min(all, near + wide), costs.far);
  if (wide > 0) {
    comm.links[PLEXUS_LINK_XDC] = describe_link(wide, costs.wide);
  }
  return comm;
}

}  // namespace

double PolicySize::regret(const PolicyRow& row) const {
  return std::max(0.0, row.chosen.result.time_us / best.result.time_us - 1);
}

Result<Policies> Policies::open(const SimOptions& options, const Fabric* fabric) {
  Policies made(options, fabric);
  const ChannelOrder order = order_of(options, fabric);
  made.costs_ = std::make_unique<LoopCosts>(order, true);
  PLEXUS_TRY(config, read_config());
  for (const std::string& name : options.tuners) {
    PLEXUS_TRY(tuner, Tuner::open({.plugin = name == "default" ? "" : name,
                                   .folders = config.plugin_path,
                                   .net_plugins = "",
                                   .own_folder = find_library_folder()},
                                  describe_cluster(options, order)));
    made.policies_.push_back({.name = name, .tuner = std::move(tuner)});
  }
  return made;
}

Result<SimRow> Policies::simulate_choice(const Policy& policy,
                                         const SimOptions& call,
                                         uint64_t bytes) const {
  constexpr int kChannelsMax = 64;
  static const CollnetAbility kNoCollnet{.missing = "the simulator has none"};
  PLEXUS_TRY(filter, AlgorithmFilter::parse("", lower(name(call.protocol))));
  const ChoiceInput input{.collective = call.collective,
                          .size_bytes = bytes,
                          .nranks = call.nranks,
                          .root = call.root,
                          .channels_min = 1,
                          .channels_max = kChannelsMax,
                          .slot_bytes = slot_bytes_of(call),
                          .nodes = (call.nranks + call.ranks_per_node - 1) / call.ranks_per_node,
                          .ranks_per_node_max = std::min(call.ranks_per_node, call.nranks),
                          .collnet = &kNoCollnet,
                          .costs = costs_.get()};
  PLEXUS_TRY(choice, choose_algorithm(input, filter, policy.tuner.get()));
  SimOptions chosen = call;
  chosen.channels = choice.channels;
  chosen.slot_bytes = choice.chunk_bytes;
  return simulate_call(chosen, *choice.algorithm, bytes, fabric_);
}

Result<PolicySize> Policies::compare(Collective collective, uint64_t bytes) const {
  SimOptions call = options_;
  call.collective = collective;
  call.trace.clear();
  PolicySize size;
  const auto take_if_better = [&size](const SimRow& row) {
    if (size.best.algorithm.empty() || row.result.time_us < size.best.result.time_us) {
      size.best = row;
    }
  };
  PLEXUS_TRY(all, list_algorithms(call));
  for (const Algorithm* const algorithm : all) {
    PLEXUS_TRY(row, simulate_call(call, *algorithm, bytes, fabric_));
    PLEXUS_TRY(row.check_ends());
    take_if_better(row);
  }
  for (const Policy& policy : policies_) {
    PLEXUS_TRY(row, simulate_choice(policy, call, bytes));
    PLEXUS_TRY(row.check_ends());
    take_if_better(row);
    size.rows.push_back({.policy = policy.name, .chosen = std::move(row)});
  }
  return size;
}

Result<std::vector<WorkloadCall>> parse_workload(std::string_view text) {
  constexpr uint64_t kBytesMax = uint64_t{1} << 40;
  constexpr uint64_t kTimesMax = 1'000'000'000;
  constexpr size_t kCallsMax = 100'000;
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  const auto calls = json.is_object() ? json.find("calls") : json.end();
  if (calls == json.end() || !calls->is_array() || calls->size() > kCallsMax) {
    return fail(Code::kInvalidArgument, "expects {{\"calls\": [...]}} with at most {} calls",
                kCallsMax);
  }
  std::vector<WorkloadCall> read;
  for (const nlohmann::json& call : *calls) {
    const auto number = [&](const char* key, uint64_t otherwise) {
      const auto at = call.is_object() ? call.find(key) : call.end();
      return at == call.end() ? otherwise : at->is_number_unsigned() ? at->get<uint64_t>() : 0;
    };
    const auto named = call.is_object() ? call.find("collective") : call.end();
    const uint64_t bytes = number("bytes", 0);
    const uint64_t times = number("times", 1);
    if (named == call.end() || !named->is_string() || bytes == 0 || bytes > kBytesMax ||
        times == 0 || times > kTimesMax) {
      return fail(Code::kInvalidArgument,
                  "call {}: expects \"collective\", \"bytes\" up to {} and \"times\" up to {}",
                  read.size(), kBytesMax, kTimesMax);
    }
    PLEXUS_TRY(collective, parse_collective(named->get<std::string>()));
    read.push_back({.collective = collective, .bytes = bytes, .times = times});
  }
  return read;
}

}  // namespace plexus
