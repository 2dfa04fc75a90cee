// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/topo/fitted_times.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "tools/cli/perf/vocabulary.hpp"

namespace plexus {
namespace {

constexpr size_t place(auto kind) { return static_cast<size_t>(kind); }

constexpr std::array<const char*, kNetworks> kNetworkNames = {
    "ib", "roce", "efa", "efa1", "tcpx", "tcpxo", "slingshot", "tcp", "staged"};
constexpr std::array<const char*, kGpuFamilies> kFamilyNames = {"PCIe", "Volta", "Ampere", "Hopper",
                                                                "Blackwell"};
constexpr std::array<const char*, 7> kCallNames = {
    "broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce", "alltoall", "sendrecv"};
// Of one GPU, one way, GB/s.
constexpr std::array<double, kGpuFamilies> kLinks = {24, 150, 300, 450, 900};
constexpr double kPerUs = 1e3;  // bytes in a microsecond at 1 GB/s
constexpr ByProtocol kWire = {2, 16.0 / 15, 1};
// Bytes that make one more channel worth it (of NCCL's threads and thresholds).
constexpr ByProtocol kChannelBytes = {512 * 8, 640 * 8, 512 * 64};

// Printed by `public_accuracy DATA --costs` (docs/simulator.md).
constexpr FittedCosts kCosts = {
    .gpus = {{
        // PCIe
        {.start_us = 6.96,
         .hop_us = {1.11, 1.72, 2.32},
         .lane_gb_per_s = {15.3, 18, 16.8},
         .efficiency = {1.25, 0.667, 1.1},
         .tree_efficiency = 0.43,
         .nvls_us = 32.5,
         .nvls_efficiency = 0.9,
         .p2p_us = 2.34,
         .p2p_efficiency = 0.63},
        // Volta
        {.start_us = 6.99,
         .hop_us = {0.946, 1.78, 3.54},
         .lane_gb_per_s = {13.1, 21, 10.9},
         .efficiency = {1.16, 0.726, 1.02},
         .tree_efficiency = 0.449,
         .nvls_us = 30.4,
         .nvls_efficiency = 0.934,
         .p2p_us = 1.61,
         .p2p_efficiency = 0.685},
        // Ampere
        {.start_us = 8.28,
         .hop_us = {0.939, 2.14, 4.13},
         .lane_gb_per_s = {5.57, 19.4, 10.3},
         .efficiency = {1.16, 0.699, 0.975},
         .tree_efficiency = 0.568,
         .nvls_us = 32.5,
         .nvls_efficiency = 0.9,
         .p2p_us = 2.19,
         .p2p_efficiency = 0.658},
        // Hopper
        {.start_us = 5.07,
         .hop_us = {0.743, 1.71, 3.56},
         .lane_gb_per_s = {15.9, 28, 10.4},
         .efficiency = {1.23, 1.09, 1.09},
         .tree_efficiency = 0.34,
         .nvls_us = 23.4,
         .nvls_efficiency = 1.05,
         .p2p_us = 1.28,
         .p2p_efficiency = 0.78},
        // Blackwell
        {.start_us = 8.16,
         .hop_us = {1.21, 1.54, 3.02},
         .lane_gb_per_s = {25.1, 14.7, 10.4},
         .efficiency = {1.09, 0.432, 0.997},
         .tree_efficiency = 0.469,
         .nvls_us = 39.5,
         .nvls_efficiency = 0.828,
         .p2p_us = 1.28,
         .p2p_efficiency = 0.627},
    }},
    .networks = {{
        // in the order of their names
        {.hop_us = 7.08, .simple_factor = 1.17, .efficiency = 1, .message_us = 0.326},
        {.hop_us = 6.98, .simple_factor = 3, .efficiency = 0.964, .message_us = 0.293},
        {.hop_us = 26.2, .simple_factor = 2, .efficiency = 1, .message_us = 1.95},
        {.hop_us = 29.5, .simple_factor = 1.83, .efficiency = 0.469, .message_us = 4.1},
        {.hop_us = 87.5, .simple_factor = 1.43, .efficiency = 0.628, .message_us = 20.7},
        {.hop_us = 54, .simple_factor = 1.41, .efficiency = 0.99, .message_us = 1.53},
        {.hop_us = 5.28, .simple_factor = 1.97, .efficiency = 0.978, .message_us = 3.47},
        {.hop_us = 40.4, .simple_factor = 2.07, .efficiency = 0.156, .message_us = 10.5},
        {.hop_us = 27.7, .simple_factor = 2.68, .efficiency = 0.227, .message_us = 3.1},
    }},
    .shared = {.chunk_bytes = {2.91e+04, 5.57e+04, 6.27e+04},
               .tree_chunk_bytes = 2.98e+04,
               .nvls_fill_bytes = 1.78e+07,
               .nvls_tree_fill_bytes = 4.16e+07,
               .nvls_tree_hop = 3.67,
               .nvls_tree_fill = 2.59,
               .ll128_factor = 1.19,
               .own_copy = 0.667,
               .one_process_us = 3.67,
               .torch_us = 35},
};

template <class Value, size_t kCount>
std::optional<Value> find_in(const std::array<const char*, kCount>& names, std::string_view name) {
  const auto* const found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? std::nullopt
                              : std::optional(static_cast<Value>(found - names.begin()));
}

/// One call, with what all algorithms need.
class Estimate {
 public:
  Estimate(const FittedCosts& costs,
           const FittedMachine& machine,
           FittedCall call,
           const FittedChoice& way,
           size_t bytes)
      : gpu_(costs.gpus.at(place(machine.gpu))),
        net_(costs.networks.at(place(machine.network))),
        shared_(costs.shared),
        machine_(machine),
        call_(call),
        way_(way),
        p_(place(way.protocol)),
        ranks_(machine.cluster.ranks),
        nodes_(machine.cluster.nodes),
        per_node_(std::max(1, machine.cluster.ranks / machine.cluster.nodes)),
        bytes_(static_cast<double>(bytes)),
        far_us_(nodes_ == 1 ? 0 : net_.hop_us),
        // NICs that work side by side, and what they carry in a microsecond
        nics_(std::clamp(machine.nics, 1, per_node_)),
        nic_(nodes_ == 1 ? HUGE_VAL
                         : std::max(machine.nic_gb_per_s, 0.1) * net_.efficiency * kPerUs),
        link_(kLinks.at(place(machine.gpu)) * kPerUs) {}

  [[nodiscard]] double solve() const {
    if (way_.direct) {
      return gpu_.start_us + direct();
    }
    switch (way_.algorithm) {
      case NcclAlgorithm::kTree:
        return gpu_.start_us + tree();
      case NcclAlgorithm::kNvls:
      case NcclAlgorithm::kNvlsTree:
        return gpu_.start_us + nvls();
      case NcclAlgorithm::kRing:
      case NcclAlgorithm::kPat:
        break;
    }
    return gpu_.start_us + ring();
  }

 private:
  /// Every rank to every other, or one to the next.
  [[nodiscard]] double direct() const {
    const bool all = call_ == FittedCall::kAllToAll;
    const double message = all ? bytes_ / ranks_ : bytes_;
    const double near = all ? per_node_ - 1 + shared_.own_copy : nodes_ == 1 ? 1 : 0;
    const double far = all ? ranks_ - per_node_ : nodes_ == 1 ? 0 : 1;
    const size_t simple = place(NcclProtocol::kSimple);
    const double within =
        gpu_.p2p_us * std::log2(ranks_) +
        std::min(message, shared_.chunk_bytes[simple]) / (gpu_.lane_gb_per_s[simple] * kPerUs) +
        message * near / (link_ * gpu_.p2p_efficiency);
    return nodes_ == 1 ? within
                       : within + far_us_ * net_.simple_factor +
                             far * per_node_ * (net_.message_us / nics_ + message / nic_);
  }

  /// The switch adds up and copies.
  [[nodiscard]] double nvls() const {
    const double factor = bus_factor(call_, ranks_);
    double rate = link_ * gpu_.nvls_efficiency;
    if (way_.algorithm == NcclAlgorithm::kNvls) {
      const double fill = shared_.nvls_fill_bytes;
      return gpu_.nvls_us + (bytes_ + fill * bytes_ / (bytes_ + fill)) * factor / rate;
    }
    // Of two nodes each sends half of a call up and half down, of more twice as much.
    rate = std::min(rate, nic_ * factor / (nodes_ == 2 ? 1 : 2));
    const double fill = shared_.nvls_tree_fill_bytes;
    const double full = bytes_ / (bytes_ + fill);
    return gpu_.nvls_us +
           far_us_ * (2 * levels() * shared_.nvls_tree_hop + shared_.nvls_tree_fill * full) +
           (bytes_ + fill * full) * factor / rate;
  }

  /// Chains in nodes, trees over them: up and down.
  [[nodiscard]] double tree() const {
    const double channels = channels_for(1);
    const NcclGraph& graph = machine_.cluster.tree;
    const bool simple = way_.protocol == NcclProtocol::kSimple;
    const double chunk_us =
        std::min(bytes_ / channels, simple ? shared_.tree_chunk_bytes : shared_.chunk_bytes[p_]) /
        (gpu_.lane_gb_per_s[p_] * kPerUs);
    const double rate = std::min(
        graph.channels * graph.intra_gb_per_s * gpu_.tree_efficiency * gpu_.efficiency[p_] * kPerUs,
        nic_ / (nodes_ == 2 ? 1 : 2));
    const double messages = nodes_ == 1 ? 0 : channels / nics_ * (nodes_ == 2 ? 2 : 3);
    return 2 * (per_node_ - 1) * (gpu_.hop_us[p_] + chunk_us) +
           2 * levels() * (far_hop_us() + chunk_us) + bytes_ * kWire[p_] / rate +
           messages * net_.message_us;
  }

  [[nodiscard]] double ring() const {
    const NcclGraph& graph = machine_.cluster.ring;
    const double rate =
        std::min(graph.channels * graph.intra_gb_per_s * gpu_.efficiency[p_] * kPerUs, nic_) /
        kWire[p_];
    const bool pipeline = call_ == FittedCall::kBroadcast || call_ == FittedCall::kReduce;
    const double rounds = call_ == FittedCall::kAllReduce ? 2 : 1;
    const double channels = channels_for(way_.protocol == NcclProtocol::kLL ? ranks_ : 1);
    const double parts = pipeline ? 1 : ranks_;
    const double chunk_us = std::min(bytes_ / channels / parts, shared_.chunk_bytes[p_]) /
                            (gpu_.lane_gb_per_s[p_] * kPerUs);
    const double steps = rounds * (ranks_ - 1);
    const double far = nodes_ == 1 ? 0 : rounds * (nodes_ - 1);
    const double own = pipeline || call_ == FittedCall::kAllReduce ? 0 : shared_.own_copy;
    const double sent = pipeline ? bytes_ : (steps + own) * bytes_ / ranks_;
    const double messages = nodes_ == 1 ? 0 : channels / nics_ * (pipeline ? 1 : steps);
    return (steps - far) * (gpu_.hop_us[p_] + chunk_us) + far * (far_hop_us() + chunk_us) +
           sent / rate + messages * net_.message_us;
  }

  [[nodiscard]] double channels_for(double parts) const {
    return std::clamp(std::floor(bytes_ / (kChannelBytes[p_] * parts)), 1.0,
                      static_cast<double>(machine_.cluster.channels));
  }
  [[nodiscard]] double far_hop_us() const {
    return far_us_ * (way_.protocol == NcclProtocol::kSimple  ? net_.simple_factor
                      : way_.protocol == NcclProtocol::kLL128 ? shared_.ll128_factor
                                                              : 1);
  }
  [[nodiscard]] double levels() const { return std::floor(std::log2(nodes_)); }

  const GpuCosts& gpu_;
  const NetworkCosts& net_;
  const SharedCosts& shared_;
  const FittedMachine& machine_;
  FittedCall call_;
  const FittedChoice& way_;
  size_t p_;
  int ranks_;
  int nodes_;
  int per_node_;
  double bytes_;
  double far_us_;
  int nics_;
  double nic_;
  double link_;
};

GpuFamily kind_of(const NcclCluster& cluster) {
  constexpr int kSmBlackwell = 100;
  constexpr int kSmConsumer = 120;
  const bool alone = cluster.ranks == cluster.nodes;
  const int sm = cluster.sm_min;
  if (sm >= kSmConsumer || (!alone && cluster.ring.intra_type > PathType::kNvb)) {
    return GpuFamily::kPcie;
  }
  return sm >= kSmBlackwell ? GpuFamily::kBlackwell
         : sm >= kSmHopper  ? GpuFamily::kHopper
         : sm == 80         ? GpuFamily::kAmpere
         : sm == 70         ? GpuFamily::kVolta
                            : GpuFamily::kPcie;
}

}  // namespace

std::optional<Network> find_network(std::string_view name) {
  return find_in<Network>(kNetworkNames, name);
}
std::string network_names() { return fmt::format("{}", fmt::join(kNetworkNames, ", ")); }
const char* name(GpuFamily kind) { return kFamilyNames.at(place(kind)); }
std::optional<FittedCall> find_fitted_call(std::string_view name) {
  return find_in<FittedCall>(kCallNames, name);
}
const char* name(FittedCall call) { return kCallNames.at(place(call)); }
const FittedCosts& fitted_costs() { return kCosts; }

FittedMachine describe_fitted(const ClusterChannels& cluster, Network network) {
  FittedMachine machine{.cluster = describe_for_nccl(cluster), .network = network};
  machine.gpu = kind_of(machine.cluster);
  if (network == Network::kEfa && machine.cluster.sm_min < kSmHopper) {
    machine.network = Network::kEfa1;
  }
  const System& part = cluster.parts.front();
  for (int net = 0; net < part.count(NodeType::kNet); ++net) {
    if (part.node(NodeType::kNet, net).net.first == net) {
      ++machine.nics;
      machine.nic_gb_per_s += part.node(NodeType::kNet, net).net.gb_per_s;
    }
  }
  return machine;
}

FittedChoice FittedMachine::choose(FittedCall call,
                                   size_t bytes,
                                   std::optional<NcclAlgorithm> forced) const {
  if (call == FittedCall::kAllToAll || call == FittedCall::kSendRecv) {
    return {.direct = true};
  }
  const bool simple_only = cluster.nodes > 1 && network == Network::kEfa1;
  const NcclModel model(cluster);
  const auto collective = static_cast<NcclCollective>(call);
  FittedChoice best;
  double best_us = HUGE_VAL;
  for (const NcclAlternative& way : model.alternatives(collective)) {
    const double us = model.time_us(collective, way, bytes);
    const bool allowed = (!simple_only || way.protocol == NcclProtocol::kSimple) &&
                         (!forced.has_value() || way.algorithm == *forced);
    if (allowed && us < best_us) {
      best_us = us;
      best = {.algorithm = way.algorithm, .protocol = way.protocol};
    }
  }
  return best;
}

double fitted_time_us(const FittedCosts& costs,
                      const FittedMachine& machine,
                      FittedCall call,
                      const FittedChoice& way,
                      size_t bytes,
                      Setup setup) {
  const double us = Estimate(costs, machine, call, way, bytes).solve();
  const SharedCosts& shared = costs.shared;
  switch (setup) {
    case Setup::kOneProcess: {
      // Launches follow each other: a call that is shorter waits for the next. An all-to-all is a
      // group of sends and receives, which takes this much longer to launch.
      constexpr double kGroup = 2.5;
      return std::max(us, shared.one_process_us * machine.cluster.ranks *
                              (call == FittedCall::kAllToAll ? kGroup : 1));
    }
    case Setup::kTorch: {
      constexpr double kBeside = 0.4;  // of the loop's time that a long call does not hide
      return std::max(us + kBeside * shared.torch_us,
                      shared.torch_us + costs.gpus.at(place(machine.gpu)).start_us);
    }
    case Setup::kProcesses:
      break;
  }
  return us;
}

double bus_factor(FittedCall call, int ranks) {
  return perf::bus_factor(*perf::find_collective(name(call)), ranks);
}

}  // namespace plexus
