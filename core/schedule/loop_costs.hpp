// SPDX-License-Identifier: Apache-2.0
// What a loop of every algorithm costs in one communicator: by the table's formulas in one data
// datacenter; counted in its programs, once, where there are several.
#pragma once

#include <map>
#include <mutex>
#include <span>

#include "core/schedule/channel_order.hpp"
#include "kernels/program/cost.hpp"

namespace plexus {

/// Threads: any.
class LoopCosts {
 public:
  /// `meshed`: every datacenter reaches every other directly.
  LoopCosts(const ChannelOrder& order, bool meshed);

  /// Not of algorithms that reduce in the network: those are for one datacenter.
  /// Of more than kCountedRanksMax ranks, what goes between datacenters (and all of an algorithm
  /// made for them) is that of as many ranks in the same proportions. `root` is rank 0.
  [[nodiscard]] const LoopCost& of(const Algorithm& algorithm) const;
  [[nodiscard]] int datacenters() const { return datacenters_; }
  [[nodiscard]] bool meshed() const { return meshed_; }

  static constexpr int kCountedRanksMax = 64;

 private:
  [[nodiscard]] LoopCost count(const Algorithm& algorithm) const;

  int nranks_;
  int datacenters_ = 1;
  bool meshed_;
  ChannelOrder counted_;  // at most kCountedRanksMax ranks
  mutable std::mutex mutex_;
  mutable std::map<const Algorithm*, LoopCost> known_;  // guarded by mutex_
};

/// The least that any algorithm moves between datacenters with so many ranks each, in all: bytes
/// per byte of the call's larger buffer.
double least_xdc_share(Collective collective, std::span<const int> sizes, int root_datacenter);

}  // namespace plexus
