// SPDX-License-Identifier: Apache-2.0
// One attempt of the search. With given speeds and path types it builds channel after channel,
// reserves bandwidth on the links when it descends, releases it when it backtracks, and keeps the
// best result so far.
#pragma once

#include <cstdint>
#include <vector>

#include "core/topo/attempt.hpp"
#include "core/topo/search_order.hpp"
#include "core/topo/system.hpp"

namespace plexus {

/// Steps that are left. Negative: the best possible result was found and the search ends.
using Budget = int;
inline constexpr Budget kPerfect = -1;

class SearchState {
 public:
  SearchState(const System& system, const TopoOptions& options);
  SearchState(const SearchState&) = delete;
  SearchState& operator=(const SearchState&) = delete;

  /// Runs `attempt`; a better result replaces `best`.
  void run(Attempt& attempt, Attempt& best, Budget& budget);

 private:
  enum class Order : uint8_t { kFree, kDevices, kReplay };

  /// The step at which a channel goes to the NIC or closes its ring, as a count of ranks; -1:
  /// never.
  struct Turns {
    int to_net = -1;
    int to_first = -1;
    Order order = Order::kFree;
  };

  struct Place {
    NodeType type;
    int ordinal;
  };

  void next_channel(Budget& budget);
  void next_channel_inside(Turns turns, Budget& budget);
  void next_channel_from_net(Turns turns, Budget& budget);
  void start_at_net(int net, Turns turns, Budget& budget);
  bool start_head(int net, int nets, Turns turns, Budget& budget);
  void visit(int rank, int step, Turns turns, Budget& budget);
  void leave_by_net(int rank, int step, Turns turns, Budget& budget);
  void go_on(int rank, int step, Turns turns, Budget& budget);
  void serve_switch(int head, Budget& budget);
  void finish_channel(Budget& budget);
  void try_rank(const Place* from, int rank, int step, Turns turns, Budget& budget);

  [[nodiscard]] bool is_better(const Attempt& found, const Attempt& known) const;
  [[nodiscard]] int first_of(int net) const { return system_.node(NodeType::kNet, net).net.first; }
  [[nodiscard]] bool may_leave_by(int net, int step) const;
  [[nodiscard]] int replayed(int step) const;

  /// Reserves (with factor < 0: releases) the channel's bandwidth; false: it does not fit.
  bool take(Place from, Place to, int factor);
  /// Reserves bandwidth on the first `length` hops; returns the number of hops that had enough.
  int take_hops(const Path& path, int length, float gb_per_s, bool from_rank);
  void take_net(int net, float gb_per_s);

  [[nodiscard]] int& order_at(int channel, int step) {
    return attempt_->order[slot(channel, step, ranks_)];
  }
  [[nodiscard]] ChannelNets& nets_at(int channel) {
    return attempt_->nets[static_cast<size_t>(channel)];
  }

  System system_;  // a copy whose links hold their remaining bandwidth
  SearchOrder order_;
  int ranks_;
  bool inter_;
  // by rank: a bit for each channel that contains the rank
  std::vector<uint64_t> used_;
  Attempt* attempt_ = nullptr;
  Attempt* best_ = nullptr;
};

}  // namespace plexus
