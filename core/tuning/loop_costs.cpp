// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/loop_costs.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace plexus {
namespace {

LoopCost cost_by_table(const Algorithm& algorithm, int nranks) {
  return LoopCost(cost_of(algorithm, {.nranks = nranks}));
}

/// A smaller order with about `most` ranks: each datacenter keeps its share, at least one rank.
ChannelOrder shrink(const ChannelOrder& order, int datacenters, int most) {
  std::vector<int> sizes(static_cast<size_t>(datacenters));
  for (const int datacenter : order.datacenters) {
    ++sizes[static_cast<size_t>(datacenter)];
  }
  ChannelOrder small;
  small.above = order.above;
  for (int datacenter = 0; datacenter < datacenters; ++datacenter) {
    const int64_t share = int64_t{sizes[static_cast<size_t>(datacenter)]} * (most - datacenters);
    const auto members = 1 + static_cast<int>(share / static_cast<int64_t>(order.ring.size()));
    small.nodes.push_back(static_cast<int>(small.datacenters.size()));
    small.datacenters.insert(small.datacenters.end(), static_cast<size_t>(members), datacenter);
  }
  small.ring.resize(small.datacenters.size());
  std::iota(small.ring.begin(), small.ring.end(), 0);
  return small;
}

/// The first hosts, two at least, with at most `most` ranks in all; of a large host half of them.
ChannelOrder first_hosts(const ChannelOrder& order, int most) {
  const auto all = static_cast<int>(order.ring.size());
  int nranks = 0;
  ChannelOrder first;
  for (size_t host = 0; host < order.nodes.size(); ++host) {
    const int end = host + 1 < order.nodes.size() ? order.nodes[host + 1] : all;
    const int members = std::min(end - order.nodes[host], most / 2);
    if (host >= 2 && nranks + members > most) {
      break;
    }
    first.nodes.push_back(nranks);
    nranks += members;
  }
  first.ring.resize(static_cast<size_t>(nranks));
  std::iota(first.ring.begin(), first.ring.end(), 0);
  return first;
}

}  // namespace

LoopCosts::LoopCosts(const ChannelOrder& order, bool meshed)
    : nranks_(static_cast<int>(order.ring.size())), meshed_(meshed) {
  for (const int datacenter : order.datacenters) {
    datacenters_ = std::max(datacenters_, datacenter + 1);
  }
  whole_ = order;
  counted_ = order;
  if (nranks_ > kCountedRanksMax && datacenters_ > 1) {
    counted_ = shrink(order, datacenters_, std::max(kCountedRanksMax, 2 * datacenters_));
  } else if (nranks_ > kCountedRanksMax && order.nodes.size() > 1) {
    counted_ = first_hosts(order, kCountedRanksMax);
  } else if (nranks_ > kCountedRanksMax) {
    counted_.ring.resize(kCountedRanksMax);
    std::iota(counted_.ring.begin(), counted_.ring.end(), 0);
    counted_.nodes = {0};
  }
}

const LoopCost& LoopCosts::of(const Algorithm& algorithm) const {
  const std::lock_guard lock(mutex_);
  const auto at = known_.find(&algorithm);
  return at != known_.end() ? at->second
                            : known_.emplace(&algorithm, count(algorithm)).first->second;
}

LoopCost LoopCosts::count_in(const ChannelOrder& order, const Algorithm& algorithm) const {
  return count_cost(algorithm, record_input_of(order, 0));
}

/// Extrapolates to more ranks than are counted: the same share of what moves, and of a chain that
/// grows with the number of ranks; of a logarithmic one all that is more.
void LoopCosts::add_net(const Algorithm& algorithm, LoopCost& cost) const {
  const auto counted_ranks = static_cast<int>(counted_.ring.size());
  const bool has_programs = algorithm.recorded == nullptr || counted_ranks == nranks_;
  if (counted_.nodes.size() < 2 || counted_ranks > algorithm.nranks_max || !has_programs) {
    return;
  }
  const LoopCost counted = count_in(counted_, algorithm);
  const auto share = [](int64_t part, int64_t whole, int64_t of) {
    return whole == 0 ? 0 : part * of / whole;
  };
  cost.net_chunks =
      static_cast<int>(share(counted.net_chunks, counted.chunks_moved, cost.chunks_moved));
  cost.net_chunks_in_all =
      share(counted.net_chunks_in_all, counted.chunks_in_all, cost.chunks_in_all);
  const bool is_linear =
      2 * int64_t{cost.rounds} * counted_ranks >= int64_t{counted.rounds} * nranks_;
  cost.net_rounds = is_linear
                        ? static_cast<int>(share(counted.net_rounds, counted.rounds, cost.rounds))
                        : counted.net_rounds + cost.rounds - counted.rounds;
}

LoopCost LoopCosts::count(const Algorithm& algorithm) const {
  const auto counted_ranks = static_cast<int>(counted_.ring.size());
  if (datacenters_ == 1 && !algorithm.for_datacenters) {
    LoopCost cost = cost_by_table(algorithm, nranks_);
    add_net(algorithm, cost);
    return cost;
  }
  if (algorithm.recorded != nullptr) {
    return count_in(whole_, algorithm);
  }
  LoopCost counted;
  if (counted_ranks <= algorithm.nranks_max) {
    counted = count_in(counted_, algorithm);
  }
  if (algorithm.for_datacenters || counted.chunks == 0) {
    return counted;
  }
  LoopCost cost = cost_by_table(algorithm, nranks_);
  cost.xdc_rounds = counted.xdc_rounds;
  if (counted_ranks == nranks_) {
    cost.net_rounds = counted.net_rounds;
    cost.net_chunks = counted.net_chunks;
    cost.net_chunks_in_all = counted.net_chunks_in_all;
  }
  cost.xdc_chunks = counted.xdc_chunks;
  // The chunks between datacenters grow with the chunks of a loop; in an all-to-all also with the
  // number of ranks on each side.
  const int64_t more = algorithm.collective == Collective::kAllToAll ? nranks_ : 1;
  const int64_t less = algorithm.collective == Collective::kAllToAll ? counted_ranks : 1;
  for (int64_t& chunks : cost.xdc_chunks) {
    chunks = chunks * cost.chunks * more / (int64_t{counted.chunks} * less);
  }
  return cost;
}

double least_xdc_share(Collective collective, std::span<const int> sizes, int root_datacenter) {
  const auto datacenters = static_cast<double>(sizes.size());
  const double nranks = std::accumulate(sizes.begin(), sizes.end(), 0.0);
  const double beside_root = nranks - sizes[static_cast<size_t>(root_datacenter)];
  double pairs = 0;
  switch (collective) {
    case Collective::kAllReduce:  // to one datacenter and back (Patarasuk and Yuan, 2009)
      return 2 * (datacenters - 1);
    case Collective::kGather:
    case Collective::kScatter:
      return beside_root / nranks;
    case Collective::kAllToAll:  // one block per pair of ranks
      for (const int size : sizes) {
        pairs += size * (nranks - size);
      }
      return pairs / nranks;
    default:  // every byte, or a part of its result, crosses to every other datacenter
      return datacenters - 1;
  }
}

}  // namespace plexus
