// SPDX-License-Identifier: Apache-2.0
// The cost of one loop of each algorithm in a communicator: from the table's formulas; what goes
// between hosts, and all that depends on datacenters, is counted in the recorded programs, once per
// algorithm.
#pragma once

#include <map>
#include <mutex>
#include <span>

#include "core/tuning/channel_order.hpp"
#include "kernels/program/cost.hpp"

namespace plexus {

/// Threads: any.
class LoopCosts {
 public:
  /// `meshed`: every datacenter reaches every other one directly.
  LoopCosts(const ChannelOrder& order, bool meshed);

  /// The cost of `algorithm` with rank 0 as root. Not for algorithms that reduce in the network,
  /// which run in one datacenter only. With more than kCountedRanksMax ranks, the traffic between
  /// hosts is scaled from that of the first ones, and the traffic between datacenters (and
  /// everything of an algorithm for several datacenters) from kCountedRanksMax ranks in the same
  /// proportions.
  [[nodiscard]] const LoopCost& of(const Algorithm& algorithm) const;
  [[nodiscard]] int datacenters() const { return datacenters_; }
  [[nodiscard]] bool meshed() const { return meshed_; }

  static constexpr int kCountedRanksMax = 64;

 private:
  [[nodiscard]] LoopCost count(const Algorithm& algorithm) const;
  [[nodiscard]] LoopCost count_in(const ChannelOrder& order, const Algorithm& algorithm) const;
  void add_net(const Algorithm& algorithm, LoopCost& cost) const;

  int nranks_;
  int datacenters_ = 1;
  bool meshed_;
  ChannelOrder whole_;  // of algorithms from files, whose programs are there for all ranks
  // At most kCountedRanksMax ranks, or one per datacenter, or two hosts.
  ChannelOrder counted_;
  mutable std::mutex mutex_;
  mutable std::map<const Algorithm*, LoopCost> known_;  // guarded by mutex_
};

/// The least total traffic between datacenters of any algorithm, in bytes per byte of the call's
/// larger buffer. `sizes`: number of ranks of each datacenter.
double least_xdc_share(Collective collective, std::span<const int> sizes, int root_datacenter);

}  // namespace plexus
