// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/sim/policy.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "core/base/config.hpp"
#include "core/base/text.hpp"
#include "core/tuning/trial_series.hpp"
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

double PolicyRow::time_us(uint64_t calls) const {
  double sum_us = 0;
  for (const Trial& trial : trials) {
    const uint64_t made = std::min<uint64_t>(calls, trial.calls);
    sum_us += static_cast<double>(made) * trial.time_us;
    calls -= made;
  }
  return sum_us + static_cast<double>(calls) * chosen.result.time_us;
}

Result<PolicyRow> Policies::simulate_policy(const Policy& policy,
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
  std::map<std::tuple<const Algorithm*, int, uint32_t>, SimRow> simulated;
  const auto simulate = [&](const Choice& choice) -> Result<SimRow> {
    const std::tuple key(choice.algorithm, choice.channels, choice.chunk_bytes);
    if (simulated.find(key) == simulated.end()) {
      SimOptions chosen = call;
      chosen.channels = choice.channels;
      chosen.slot_bytes = choice.chunk_bytes;
      PLEXUS_TRY(row, simulate_call(chosen, *choice.algorithm, bytes, fabric_));
      simulated.emplace(key, std::move(row));
    }
    return simulated.at(key);
  };
  PolicyRow row;
  row.policy = policy.name;
  TrialSeries series;
  PLEXUS_TRY(series.ask(input, filter, policy.tuner.get()));
  while (series.trial_calls() > 0) {
    PLEXUS_TRY(tried, simulate(series.choice()));
    constexpr double kNsOfUs = 1000;
    row.trials.push_back({.calls = series.trial_calls(), .time_us = tried.result.time_us});
    series.end_trial(std::llround(tried.result.time_us * kNsOfUs));
    PLEXUS_TRY(series.ask(input, filter, policy.tuner.get()));
  }
  PLEXUS_TRY(chosen, simulate(series.choice()));
  row.chosen = std::move(chosen);
  return row;
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
    PLEXUS_TRY(row, simulate_policy(policy, call, bytes));
    PLEXUS_TRY(row.chosen.check_ends());
    take_if_better(row.chosen);
    size.rows.push_back(std::move(row));
  }
  return size;
}

}  // namespace plexus
