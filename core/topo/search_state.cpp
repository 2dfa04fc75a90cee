// SPDX-License-Identifier: Apache-2.0
#include "core/topo/search_state.hpp"

#include <algorithm>
#include <cmath>

#include "core/topo/local.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

float minus_rounded(float left, float right) {
  constexpr float kDigits = 1000;
  return std::round((left - right) * kDigits) / kDigits;
}

bool goes_to_memory(NodeType type) { return type == NodeType::kGpu || type == NodeType::kNvs; }

}  // namespace

SearchState::SearchState(const System& system, const TopoOptions& options)
    : system_(system),
      order_(system_, options),
      ranks_(system.count(NodeType::kGpu)),
      inter_(system.inter && system.count(NodeType::kNet) > 0),
      used_(static_cast<size_t>(ranks_), 0) {}

void SearchState::run(Attempt& attempt, Attempt& best, Budget& budget) {
  attempt_ = &attempt;
  best_ = &best;
  attempt.channels = 0;
  attempt.order.assign(slot(attempt.channels_max, 0, ranks_), 0);
  attempt.nets.assign(static_cast<size_t>(attempt.channels_max), {});
  next_channel(budget);
}

void SearchState::next_channel(Budget& budget) {
  const int last = ranks_ - 1;
  Turns turns;
  if (inter_) {
    turns.to_net = attempt_->pattern == Pattern::kRing        ? last
                   : attempt_->pattern == Pattern::kSplitTree ? 1
                                                              : 0;
    next_channel_from_net(turns, budget);
  } else {
    turns.to_first = attempt_->pattern == Pattern::kRing ? last : -1;
    next_channel_inside(turns, budget);
  }
}

void SearchState::next_channel_inside(Turns turns, Budget& budget) {
  if (attempt_->pattern == Pattern::kNvls) {
    try_rank(nullptr, attempt_->channels, 0, turns, budget);
    return;
  }
  if (attempt_->channels == 0) {
    turns.order = Order::kDevices;
    try_rank(nullptr, 0, 0, turns, budget);
  } else {
    turns.order = Order::kReplay;
    try_rank(nullptr, replayed(-1), 0, turns, budget);
  }
  turns.order = Order::kFree;
  if (!attempt_->same_channels || attempt_->channels == 0) {
    for (int rank = 0; rank < ranks_; ++rank) {
      try_rank(nullptr, rank, 0, turns, budget);
    }
  }
}

void SearchState::next_channel_from_net(Turns turns, Budget& budget) {
  const std::vector<int> nets = order_.select_nets(attempt_->inter_type, -1);
  const int count = static_cast<int>(nets.size());
  const auto whole_gb_per_s = std::trunc(attempt_->inter_gb_per_s);
  const int channel = attempt_->channels;
  for (int i = 0; i < count; ++i) {
    const int net = nets[static_cast<size_t>((channel + i) % count)];
    if (system_.node(NodeType::kNet, net).net.gb_per_s < whole_gb_per_s) {
      continue;
    }
    if (attempt_->pattern == Pattern::kRing && attempt_->cross_nic == 2 && channel % 2 == 1 &&
        first_of(net) != nets_at(channel - 1).out) {
      continue;
    }
    nets_at(channel).in = first_of(net);
    attempt_->latency_us = system_.node(NodeType::kNet, net).net.latency_us;
    take_net(net, whole_gb_per_s);
    bool last = false;
    if (attempt_->pattern == Pattern::kNvls) {
      last = start_head(net, count, turns, budget);
    } else {
      start_at_net(net, turns, budget);
    }
    take_net(net, -whole_gb_per_s);
    if (last) {
      return;
    }
  }
}

/// Whether the port's rank was still free: then it was tried, and no other port may replace it.
bool SearchState::start_head(int net, int nets, Turns turns, Budget& budget) {
  const int head = system_.node(NodeType::kNet, net).net.local_gpu;
  if (attempt_->channels >= nets || head < 0) {
    return false;
  }
  for (int channel = 0; channel < attempt_->channels; ++channel) {
    if (order_at(channel, 0) == head) {
      return false;
    }
  }
  const Place from = {NodeType::kNet, net};
  try_rank(&from, head, 0, turns, budget);
  return true;
}

void SearchState::start_at_net(int net, Turns turns, Budget& budget) {
  const Place from = {NodeType::kNet, net};
  if (attempt_->channels > 0 && attempt_->same_channels) {
    turns.order = Order::kReplay;
    try_rank(&from, replayed(-1), 0, turns, budget);
    return;
  }
  if (attempt_->channels == 0 && system_.count(NodeType::kNvs) == 0) {
    // Device order gives a first result, with a small budget of its own.
    constexpr Budget kOwn = 1 << 10;
    Budget own = kOwn;
    turns.order = Order::kDevices;
    try_rank(&from, 0, 0, turns, own);
    if (own == kPerfect) {
      budget = kPerfect;
    }
  }
  turns.order = Order::kFree;
  const int local = system_.node(NodeType::kNet, net).net.local_gpu;
  if (local >= 0) {
    try_rank(&from, local, 0, turns, budget);
  }
  for (const int rank : nearest(system_, NodeType::kNet, net, NodeType::kGpu).ordinals) {
    if (rank != local) {
      try_rank(&from, rank, 0, turns, budget);
    }
  }
}

void SearchState::try_rank(const Place* from, int rank, int step, Turns turns, Budget& budget) {
  const Place to = {NodeType::kGpu, rank};
  const uint64_t flag = uint64_t{1} << attempt_->channels;
  if (from != nullptr && !take(*from, to, 1)) {
    return;
  }
  PLEXUS_DCHECK((used_[static_cast<size_t>(rank)] & flag) == 0, rank, attempt_->channels);
  used_[static_cast<size_t>(rank)] ^= flag;
  visit(rank, step, turns, budget);
  used_[static_cast<size_t>(rank)] ^= flag;
  if (from != nullptr) {
    take(*from, to, -1);
  }
}

void SearchState::visit(int rank, int step, Turns turns, Budget& budget) {
  if (budget <= 0) {
    return;
  }
  --budget;
  if (step == ranks_) {
    finish_channel(budget);
    return;
  }
  order_at(attempt_->channels, step) = rank;
  if (step == turns.to_net) {
    leave_by_net(rank, step, turns, budget);
  } else if (attempt_->pattern == Pattern::kNvls) {
    serve_switch(rank, budget);
  } else if (step < ranks_ - 1) {
    go_on(rank, step, turns, budget);
  } else if (step == turns.to_first) {
    const Place here = {NodeType::kGpu, rank};
    const Place first = {NodeType::kGpu, order_at(attempt_->channels, 0)};
    if (take(here, first, 1)) {
      turns.to_first = -1;
      visit(first.ordinal, step + 1, turns, budget);
      take(here, first, -1);
    }
  } else {
    visit(rank, ranks_, {}, budget);
  }
}

void SearchState::finish_channel(Budget& budget) {
  PLEXUS_DCHECK(attempt_->channels < attempt_->channels_max, attempt_->channels);
  ++attempt_->channels;
  if (is_better(*attempt_, *best_)) {
    *best_ = *attempt_;
    if (attempt_->channels == attempt_->channels_max) {
      budget = kPerfect;
    }
  }
  if (attempt_->channels < attempt_->channels_max) {
    next_channel(budget);
  }
  --attempt_->channels;
}

bool SearchState::is_better(const Attempt& found, const Attempt& known) const {
  const auto found_channels = static_cast<float>(found.channels);
  const auto known_channels = static_cast<float>(known.channels);
  if (found.channels < found.channels_min) {
    return false;
  }
  if (found.pattern == Pattern::kNvls) {
    return (found.channels > known.channels && found.channels <= ranks_) ||
           found_channels * found.inter_gb_per_s > known_channels * known.inter_gb_per_s;
  }
  const float found_total = found_channels * found.intra_gb_per_s;
  const float known_total = known_channels * known.intra_gb_per_s;
  if (found_total != known_total) {
    return found_total > known_total;
  }
  return found.pattern == known.pattern && found.cross_nic == known.cross_nic &&
         found.hops < known.hops;
}

bool SearchState::may_leave_by(int net, int step) const {
  const int channel = attempt_->channels;
  const ChannelNets& nets = attempt_->nets[static_cast<size_t>(channel)];
  const NetDetail& in = system_.node(NodeType::kNet, nets.in).net;
  const NetDetail& out = system_.node(NodeType::kNet, net).net;
  if (in.plane >= 0 && out.plane >= 0 && in.plane != out.plane) {
    return false;
  }
  if (attempt_->pattern == Pattern::kTree && first_of(net) != nets.in) {
    return false;
  }
  if (attempt_->pattern == Pattern::kRing && attempt_->cross_nic == 2) {
    if (channel % 2 == 1 && first_of(net) != attempt_->nets[static_cast<size_t>(channel - 1)].in) {
      return false;
    }
  } else if (attempt_->cross_nic == 0) {
    const bool rails_known = in.rail >= 0 && out.rail >= 0;
    const bool same =
        rails_known ? in.rail == out.rail : in.guid == out.guid && in.port == out.port;
    if (!same) {
      return false;
    }
  }
  return attempt_->pattern != Pattern::kBalancedTree || step == 0 || first_of(net) == nets.out;
}

void SearchState::leave_by_net(int rank, int step, Turns turns, Budget& budget) {
  const Place here = {NodeType::kGpu, rank};
  const float whole = attempt_->inter_gb_per_s;
  for (const int net : order_.select_nets(attempt_->inter_type, rank)) {
    if (!may_leave_by(net, step)) {
      continue;
    }
    Turns onward = turns;
    onward.to_net = -1;
    const bool balanced = attempt_->pattern == Pattern::kBalancedTree;
    if (balanced && step == 0) {
      onward.to_net = 1;  // the second rank takes the other half
    }
    const float part = balanced ? whole / 2 : whole;
    attempt_->inter_gb_per_s = part;
    const bool taken = take(here, {NodeType::kNet, net}, 1);
    attempt_->inter_gb_per_s = whole;
    if (taken) {
      nets_at(attempt_->channels).out = first_of(net);
      visit(rank, step, onward, budget);
      attempt_->inter_gb_per_s = part;
      take(here, {NodeType::kNet, net}, -1);
      attempt_->inter_gb_per_s = whole;
    }
  }
}

void SearchState::go_on(int rank, int step, Turns turns, Budget& budget) {
  std::vector<int> next;
  switch (turns.order) {
    case Order::kDevices:
      next = {step + 1};
      break;
    case Order::kReplay:
      next = {replayed(step)};
      break;
    case Order::kFree:
      next = order_.next_ranks(*attempt_, used_, rank,
                               turns.to_net == -1         ? 0
                               : turns.to_net == step + 1 ? 1
                                                          : -1);
      break;
  }
  const Place here = {NodeType::kGpu, rank};
  for (const int to : next) {
    try_rank(&here, to, step + 1, turns, budget);
  }
}

void SearchState::serve_switch(int head, Budget& budget) {
  const Place nvs = {NodeType::kNvs, 0};
  int down = 0;  // down: flows reserved from the switch to ranks; then up: from ranks to the switch
  while (down < ranks_ && take(nvs, {NodeType::kGpu, down}, down == head ? 2 : 1)) {
    ++down;
  }
  int up = 0;
  while (down == ranks_ && up < ranks_ && take({NodeType::kGpu, up}, nvs, up == head ? 2 : 1)) {
    ++up;
  }
  if (up == ranks_) {
    visit(head, ranks_, {}, budget);
  }
  while (up-- > 0) {
    take({NodeType::kGpu, up}, nvs, up == head ? -2 : -1);
  }
  while (down-- > 0) {
    take(nvs, {NodeType::kGpu, down}, down == head ? -2 : -1);
  }
}

int SearchState::replayed(int step) const {
  return attempt_->order[slot(attempt_->channels - 1, step + 1, ranks_)];
}

bool SearchState::take(Place from, Place to, int factor) {
  const Path& path = system_.path(from.type, from.ordinal, to.type, to.ordinal);
  const bool intra = goes_to_memory(from.type) && goes_to_memory(to.type);
  const PathType limit = intra ? attempt_->intra_type : attempt_->inter_type;
  if (factor > 0) {
    const bool both_ways = is_tree(attempt_->pattern);
    if (path.type > limit ||
        (both_ways && system_.path(to.type, to.ordinal, from.type, from.ordinal).type > limit)) {
      return false;
    }
  }
  const float gb_per_s =
      static_cast<float>(factor) * (intra ? attempt_->intra_gb_per_s : attempt_->inter_gb_per_s);
  const bool from_rank = from.type == NodeType::kGpu;
  const int length = path.length();
  const int taken = take_hops(path, length, gb_per_s, from_rank);
  if (taken < length) {
    take_hops(path, taken, -gb_per_s, from_rank);
    return false;
  }
  attempt_->hops += factor * length;
  return true;
}

int SearchState::take_hops(const Path& path, int length, float gb_per_s, bool from_rank) {
  // 6/5, but multiplied before it is divided: 7 GB/s take 8.4 then, not one bit more.
  constexpr float kIntelCarried = 6;
  constexpr float kIntelUseful = 5;
  constexpr int kSmAmpere = 80;
  constexpr float kOldGpuBackflow = 1.0F / 8;
  float pci_gb_per_s = gb_per_s;
  for (const Hop& hop : path.hops) {
    const Node& node = system_.nodes[static_cast<size_t>(system_.link(hop).to)];
    if (node.type == NodeType::kCpu && from_rank && path.type == PathType::kPhb &&
        node.cpu.kind.arch == CpuArch::kX86 && node.cpu.kind.vendor == CpuVendor::kIntel) {
      pci_gb_per_s = gb_per_s * kIntelCarried / kIntelUseful;
    }
  }
  for (int step = 0; step < length; ++step) {
    const Hop& hop = path.hops[static_cast<size_t>(step)];
    Link& link = system_.nodes[static_cast<size_t>(hop.from)].links[static_cast<size_t>(hop.link)];
    Node& to = system_.nodes[static_cast<size_t>(link.to)];
    const float forward = link.type == LinkType::kPci ? pci_gb_per_s : gb_per_s;
    float backward = 0;
    if (to.type == NodeType::kDevice && !to.rank.is_host && to.rank.sm < kSmAmpere && !from_rank) {
      backward += forward * kOldGpuBackflow;
    }
    if (to.type == NodeType::kCpu && to.cpu.kind.arch == CpuArch::kPower &&
        link.type == LinkType::kNvl) {
      backward += forward;
    }
    Link* back = nullptr;
    if (backward != 0) {
      back = &*std::find_if(to.links.begin(), to.links.end(), [&](const Link& candidate) {
        return candidate.to == hop.from && candidate.type == link.type;
      });
    }
    if (link.gb_per_s < forward || (back != nullptr && back->gb_per_s < backward)) {
      return step;
    }
    link.gb_per_s = minus_rounded(link.gb_per_s, forward);
    if (back != nullptr) {
      back->gb_per_s = minus_rounded(back->gb_per_s, backward);
    }
  }
  return length;
}

void SearchState::take_net(int net, float gb_per_s) {
  const uint64_t guid = system_.node(NodeType::kNet, net).net.guid;
  const int port = system_.node(NodeType::kNet, net).net.port;
  for (int other = 0; other < system_.count(NodeType::kNet); ++other) {
    NetDetail& sharing = system_.node(NodeType::kNet, other).net;
    if (sharing.guid == guid && sharing.port == port) {
      sharing.gb_per_s -= gb_per_s;
    }
  }
}

}  // namespace plexus
