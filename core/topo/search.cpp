// SPDX-License-Identifier: Apache-2.0
#include "core/topo/search.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "core/base/units.hpp"
#include "core/topo/bandwidth.hpp"
#include "core/topo/local.hpp"
#include "core/topo/search_state.hpp"
#include "guest/thread.hpp"

namespace plexus {
namespace {

constexpr Budget kBudgetSame = 1 << 8;
constexpr Budget kBudgetFree = 1 << 14;
constexpr Budget kBudgetGlobal = 1 << 19;
constexpr int kNvlsHeadsMax = 32;

struct TypeRange {
  PathType best = PathType::kDis;
  PathType worst = PathType::kLoc;
};

/// The range of path types from ranks to `to`, without paths from a rank to itself.
TypeRange types_to(const System& system, NodeType to) {
  TypeRange range;
  for (int rank = 0; rank < system.count(NodeType::kGpu); ++rank) {
    for (int other = 0; other < system.count(to); ++other) {
      if (to != NodeType::kGpu || other != rank) {
        const PathType type = system.path(NodeType::kGpu, rank, to, other).type;
        range.best = std::min(range.best, type);
        range.worst = std::max(range.worst, type);
      }
    }
  }
  return range;
}

/// Whether the ranks form exactly two groups, each joined by NVLink inside, directly or from one to
/// the next, and not to the other.
bool has_two_islands(const System& system) {
  const int ranks = system.count(NodeType::kGpu);
  std::vector<int> island(static_cast<size_t>(ranks), -1);
  int islands = 0;
  for (int first = 0; first < ranks; ++first) {
    if (island[static_cast<size_t>(first)] >= 0) {
      continue;
    }
    std::vector<int> members = {first};
    island[static_cast<size_t>(first)] = islands;
    for (size_t at = 0; at < members.size(); ++at) {
      for (int other = 0; other < ranks; ++other) {
        int& of_other = island[static_cast<size_t>(other)];
        if (of_other < 0 && system.path(NodeType::kGpu, members[at], NodeType::kGpu, other).type <=
                                PathType::kNvb) {
          of_other = islands;
          members.push_back(other);
        }
      }
    }
    islands += 1;
    if (members.size() < 2) {
      return false;
    }
  }
  return islands == 2;
}

class Search {
 public:
  Search(const System& system, const TopoOptions& options, const SearchRequest& request)
      : system_(system),
        options_(options),
        request_(request),
        state_(system, options),
        ranks_(system.count(NodeType::kGpu)),
        inter_(system.inter && system.count(NodeType::kNet) > 0),
        names_nets_(inter_),
        sm_min_(system.sm_min()),
        speeds_(channel_speeds(sm_min_, inter_)),
        cross_nic_(may_cross(request.pattern) ? options.cross_nic : 0) {}

  ChannelGraph run() {
    prepare();
    if (!possible_) {
      return finish();
    }
    choose_first_speed();
    find_widest();
    duplicate_channels();
    widen();
    if (best_.channels == 0 && best_.pattern != Pattern::kNvls) {
      use_order_of_devices();
    }
    return finish();
  }

 private:
  [[nodiscard]] bool may_cross(Pattern pattern) const {
    return inter_ && system_.count(NodeType::kNet) > 1 && pattern != Pattern::kTree &&
           pattern != Pattern::kNvls;
  }
  [[nodiscard]] int first_cross_nic() const { return cross_nic_ == 1 ? 1 : 0; }
  [[nodiscard]] float speed() const { return speeds_[speed_]; }
  [[nodiscard]] bool has_lower_speed() const { return speed_ + 1 < speeds_.size(); }
  void set_speed() { now_.intra_gb_per_s = now_.inter_gb_per_s = speed(); }

  void prepare() {
    best_.pattern = request_.pattern;
    best_.channels_min = request_.channels_min;
    best_.channels_max = request_.channels_max;
    best_.cross_nic = first_cross_nic();
    const TypeRange intra = types_to(system_, NodeType::kGpu);
    if (ranks_ > 1) {
      intra_min_ = intra.best;
      intra_max_ = intra.worst;
    }
    if (inter_) {
      const TypeRange inter = types_to(system_, NodeType::kNet);
      inter_min_ = inter.best;
      inter_max_ = sm_min_ < kSmHopper ? PathType::kSys : inter.worst;
      intra_max_ = inter_max_;
    }
    best_.intra_type = intra_min_;
    best_.inter_type = inter_min_;
    best_.same_channels = best_.pattern != Pattern::kNvls;
    if (best_.pattern == Pattern::kNvls) {
      possible_ = system_.count(NodeType::kNvs) > 0 && sm_min_ >= kSmHopper && ranks_ > 1;
      best_.channels_max = std::min(kNvlsHeadsMax, ranks_);
      if (!inter_) {
        best_.channels_min = best_.channels_max;  // the switch serves all ranks equally
      }
    }
    if (ranks_ == 1 && best_.pattern != Pattern::kRing) {
      best_.pattern = Pattern::kTree;
    }
    if (best_.pattern == Pattern::kRing && best_.channels_max >= 2 && best_.channels_min == 1 &&
        has_two_islands(system_)) {
      best_.channels_min = 2;
    }
    start_same_ = best_.same_channels;
    now_ = best_;
  }

  void choose_first_speed() {
    float total = system_.total_gb_per_s;
    if (ranks_ > 1 && best_.pattern != Pattern::kRing) {
      total *= static_cast<float>(ranks_) / static_cast<float>(ranks_ - 1);
    }
    while (has_lower_speed() && (speed() > system_.max_gb_per_s ||
                                 speed() * static_cast<float>(best_.channels_min) > total)) {
      ++speed_;
    }
    set_speed();
  }

  /// Runs one attempt; true when no better result is possible.
  bool attempt() {
    budget_ = now_.same_channels ? kBudgetSame : kBudgetFree;
    global_ -= budget_;
    state_.run(now_, best_, budget_);
    return budget_ == kPerfect ||
           static_cast<float>(best_.channels) * best_.inter_gb_per_s >= system_.total_gb_per_s;
  }

  /// First pass: runs attempts, relaxing one requirement each time.
  void find_widest() {
    while (!attempt() && relax()) {
    }
  }

  bool relax() {
    const CpuKind& cpu = system_.node(NodeType::kCpu, 0).cpu.kind;
    const bool amd_across = cpu.arch == CpuArch::kX86 && cpu.vendor == CpuVendor::kAmd &&
                            now_.intra_type == PathType::kSys;
    if (now_.same_channels && !amd_across) {
      now_.same_channels = false;
      return true;
    }
    now_.same_channels = start_same_;
    global_ += budget_;  // budget that this attempt left over
    if (global_ < 0 && best_.channels > 0) {
      return false;
    }
    if (sm_min_ >= kSmHopper && now_.pattern == Pattern::kBalancedTree) {
      now_.pattern = Pattern::kTree;
      return true;
    }
    now_.pattern = best_.pattern;
    return relax_types() || relax_cross_nic() || lower_speed();
  }

  bool relax_types() {
    const bool nothing = best_.channels == 0;
    const PathType intra_limit = inter_ ? now_.inter_type : intra_max_;
    if (now_.intra_type < intra_limit && (nothing || now_.intra_type < best_.intra_type)) {
      now_.intra_type = next_worse(now_.intra_type);
      return true;
    }
    now_.intra_type = intra_min_;
    if (inter_ && now_.inter_type < inter_max_ &&
        (nothing || now_.inter_type < best_.inter_type || now_.inter_type < PathType::kPxn)) {
      now_.inter_type = next_worse(now_.inter_type);
      return true;
    }
    now_.inter_type = inter_min_;
    return false;
  }

  bool relax_cross_nic() {
    const bool paired = best_.pattern == Pattern::kRing || best_.pattern == Pattern::kBalancedTree;
    if (cross_nic_ == 2 && now_.cross_nic == 0 && paired) {
      now_.cross_nic = 2;
      return true;
    }
    now_.cross_nic = first_cross_nic();
    return false;
  }

  bool lower_speed() {
    constexpr float kWorthwhile = 0.49F;  // half the speed on twice the channels is equally good
    if (has_lower_speed() &&
        (best_.channels == 0 || speeds_[speed_ + 1] / best_.inter_gb_per_s > kWorthwhile)) {
      ++speed_;
      set_speed();
      return true;
    }
    return false;
  }

  /// Two channels fill a link better than one of twice the speed.
  void duplicate_channels() {
    constexpr float kFastGbPerS = 25;
    constexpr float kVeryFastGbPerS = 50;
    constexpr int kSmAmpere = 80;
    constexpr int kManyChannels = 4;
    if (best_.channels == 0 || best_.pattern == Pattern::kNvls ||
        best_.intra_gb_per_s < kFastGbPerS ||
        (sm_min_ > kSmAmpere && best_.intra_gb_per_s < kVeryFastGbPerS &&
         best_.channels > kManyChannels)) {
      return;
    }
    const int channels = std::min(best_.channels * 2, best_.channels_max);
    for (int channel = best_.channels; channel < channels; ++channel) {
      const int source = channel - best_.channels;
      std::copy_n(best_.order.begin() + static_cast<ptrdiff_t>(source) * ranks_, ranks_,
                  best_.order.begin() + static_cast<ptrdiff_t>(channel) * ranks_);
      best_.nets[static_cast<size_t>(channel)] = best_.nets[static_cast<size_t>(source)];
    }
    const auto parts = static_cast<float>(div_ceil(channels, best_.channels));
    best_.intra_gb_per_s /= parts;
    best_.inter_gb_per_s /= parts;
    best_.channels = channels;
  }

  /// Second pass: the same channels at higher speeds.
  void widen() {
    now_ = best_;
    speed_ = 0;
    while (has_lower_speed() && speed() > best_.inter_gb_per_s) {
      ++speed_;
    }
    set_speed();
    now_.channels_min = best_.channels;
    budget_ = kPerfect;
    while (budget_ != 0 && speed_ > 0 && raise_speed()) {
      attempt();
    }
  }

  bool raise_speed() {
    if (best_.pattern == Pattern::kRing) {
      --speed_;
      set_speed();
      return true;
    }
    if (best_.pattern == Pattern::kNvls) {
      if (now_.inter_gb_per_s != best_.inter_gb_per_s ||
          now_.inter_gb_per_s >= now_.intra_gb_per_s * 2) {
        return false;
      }
      now_.channels_min = now_.channels_max = best_.channels;
      now_.inter_gb_per_s = speeds_[--speed_];
      return true;
    }
    if (now_.intra_gb_per_s != best_.intra_gb_per_s ||
        now_.intra_gb_per_s >= now_.inter_gb_per_s * 2) {
      return false;
    }
    now_.intra_gb_per_s = speeds_[--speed_];
    return true;
  }

  void use_order_of_devices() {
    constexpr float kLowest = 0.1F;
    best_.order.assign(static_cast<size_t>(ranks_), 0);
    std::iota(best_.order.begin(), best_.order.end(), 0);
    best_.nets.assign(1, {});
    names_nets_ = system_.count(NodeType::kNet) > 0;  // as NCCL, also inside one node
    if (names_nets_) {
      best_.nets[0] = {.in = std::max(0, local_net_of_gpu(system_, options_, 0, 0)),
                       .out = std::max(0, local_net_of_gpu(system_, options_, ranks_ - 1, 0))};
    }
    best_.intra_gb_per_s = best_.inter_gb_per_s = kLowest;
    best_.intra_type = best_.inter_type = PathType::kSys;
    best_.channels = 1;
  }

  [[nodiscard]] ChannelGraph finish() const {
    ChannelGraph graph;
    graph.pattern = best_.pattern;
    graph.cross_nic = best_.cross_nic;
    graph.intra_gb_per_s = best_.intra_gb_per_s;
    graph.inter_gb_per_s = best_.inter_gb_per_s;
    graph.latency_us = best_.latency_us;
    graph.intra_type = best_.intra_type;
    graph.inter_type = best_.inter_type;
    graph.same_channels = best_.same_channels;
    graph.hops = best_.hops;
    const int listed = best_.pattern == Pattern::kNvls ? 1 : ranks_;
    for (int channel = 0; channel < best_.channels; ++channel) {
      std::vector<int> ranks;
      for (int step = 0; step < listed; ++step) {
        const int ordinal = best_.order[slot(channel, step, ranks_)];
        ranks.push_back(system_.node(NodeType::kGpu, ordinal).rank.rank);
      }
      graph.ranks.push_back(std::move(ranks));
      const ChannelNets& nets = best_.nets[static_cast<size_t>(channel)];
      graph.nets.push_back(
          names_nets_ ? ChannelNets{.in = device_of_net(nets.in), .out = device_of_net(nets.out)}
                      : ChannelNets{});
    }
    return graph;
  }

  [[nodiscard]] int device_of_net(int ordinal) const {
    return system_.node(NodeType::kNet, ordinal).net.device;
  }

  const System& system_;
  const TopoOptions& options_;
  SearchRequest request_;
  SearchState state_;
  int ranks_;
  bool inter_;
  bool names_nets_;
  int sm_min_;
  std::span<const float> speeds_;
  int cross_nic_;
  size_t speed_ = 0;
  PathType intra_min_ = PathType::kLoc;
  PathType intra_max_ = PathType::kSys;
  PathType inter_min_ = PathType::kPix;
  PathType inter_max_ = PathType::kSys;
  bool start_same_ = true;
  bool possible_ = true;
  Budget budget_ = 0;
  Budget global_ = kBudgetGlobal;
  Attempt now_;   // current attempt
  Attempt best_;  // best result so far
};

}  // namespace

ChannelGraph search_channels(const System& system,
                             const TopoOptions& options,
                             const SearchRequest& request) {
  return Search(system, options, request).run();
}

NodeChannels search_node(const System& system, const TopoOptions& options) {
  return search_node(system, options, GivenChannels{});
}

NodeChannels search_node(const System& system,
                         const TopoOptions& options,
                         const GivenChannels& given) {
  NodeChannels found;
  // The search calls itself for each rank of each channel: 2.1 MiB for 64 channels of 72 ranks.
  constexpr size_t kStackBytes = size_t{4} << 20;
  run_with_stack(kStackBytes, [&] {
    found.ring =
        given.ring ? *given.ring : search_channels(system, options, {.pattern = Pattern::kRing});
    found.tree = given.tree ? *given.tree
                            : search_channels(system, options,
                                              {.pattern = Pattern::kBalancedTree,
                                               .channels_min = found.ring.channels(),
                                               .channels_max = found.ring.channels()});
    found.nvls =
        given.nvls ? *given.nvls : search_channels(system, options, {.pattern = Pattern::kNvls});
  });
  return found;
}

}  // namespace plexus
