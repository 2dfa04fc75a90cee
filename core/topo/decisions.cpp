// SPDX-License-Identifier: Apache-2.0
#include "core/topo/decisions.hpp"

#include <algorithm>

#include "core/topo/local.hpp"

namespace plexus {
namespace {

constexpr int kSmAmpere = 80;

const RankDetail& detail(const System& system, int ordinal) {
  return system.node(NodeType::kGpu, ordinal).rank;
}

std::pair<int, int> pair_of(const System& system, int from, int to) {
  return std::minmax({detail(system, from).rank, detail(system, to).rank});
}

PathType p2p_level(const System& system, const TopoOptions& options) {
  if (options.p2p_level) {
    return *options.p2p_level;
  }
  constexpr int kFewDevices = 2;
  const CpuKind& cpu = system.node(NodeType::kCpu, 0).cpu.kind;
  const bool amd = cpu.arch == CpuArch::kX86 && cpu.vendor == CpuVendor::kAmd;
  return amd && system.count(NodeType::kDevice) <= kFewDevices ? PathType::kSys : PathType::kPxb;
}

bool has_nvlink_peer(const System& system, int rank) {
  for (const Path& path :
       system.node(NodeType::kGpu, rank).paths.at(static_cast<size_t>(NodeType::kGpu))) {
    if (path.type == PathType::kNvl) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool p2p_allowed(const System& system, const TopoOptions& options, int from, int to) {
  const RankReach& reach = options.reach;
  if (!reach.p2p || reach.without_p2p.contains(pair_of(system, from, to))) {
    return false;
  }
  return system.path(NodeType::kGpu, from, NodeType::kGpu, to).type <= p2p_level(system, options);
}

bool shm_allowed(const System& system, const TopoOptions& options, int from, int to) {
  const RankReach& reach = options.reach;
  return !options.shm_disable && reach.shm &&
         !reach.without_shm.contains(pair_of(system, from, to)) &&
         system.node(NodeType::kGpu, from).host == system.node(NodeType::kGpu, to).host;
}

bool network_is_better(const System& system, const TopoOptions& options, int from, int to) {
  if (options.net_disable_intra) {
    return false;
  }
  const float direct = system.path(NodeType::kGpu, from, NodeType::kGpu, to).gb_per_s;
  const auto has_better_net = [&](int rank) {
    const auto& paths =
        system.node(NodeType::kGpu, rank).paths.at(static_cast<size_t>(NodeType::kNet));
    return std::any_of(paths.begin(), paths.end(), [direct](const Path& path) {
      return path.type <= PathType::kPxb && path.gb_per_s > direct;
    });
  };
  return has_better_net(from) && has_better_net(to);
}

bool connected_inside(const System& system, const TopoOptions& options, int from, int to) {
  return (p2p_allowed(system, options, from, to) || shm_allowed(system, options, from, to)) &&
         !network_is_better(system, options, from, to);
}

GdrUse gdr_use(const System& system, const TopoOptions& options, int rank, int net, bool sending) {
  const RankDetail& gpu = detail(system, rank);
  net = system.node(NodeType::kNet, net).net.first;
  if (!options.reach.gdr || !gpu.gdr || !system.node(NodeType::kNet, net).net.gdr) {
    return GdrUse::kOff;
  }
  if (sending && gpu.sm < kSmAmpere) {
    const bool by_default = has_nvlink_peer(system, rank) || system.count(NodeType::kGpu) == 1;
    if (!options.net_gdr_read.value_or(by_default)) {
      return GdrUse::kOff;
    }
  } else if (sending && !options.net_gdr_read.value_or(true)) {
    return GdrUse::kOff;
  }
  PathType distance = system.path(NodeType::kGpu, rank, NodeType::kNet, net).type;
  if (distance == PathType::kPxn) {  // the distance of the relay GPU counts
    const int relay = local_gpu_of_net(system, options, net);
    if (relay < 0) {
      return GdrUse::kOff;
    }
    distance = system.path(NodeType::kGpu, relay, NodeType::kNet, net).type;
  }
  const PathType farthest = options.net_gdr_c2c ? PathType::kP2c : PathType::kPxb;
  if (distance > options.net_gdr_level.value_or(farthest)) {
    return GdrUse::kOff;
  }
  if (distance == PathType::kP2c) {
    return GdrUse::kOn;
  }
  const Node& device = system.node(NodeType::kDevice, device_of(system, rank));
  const bool c2c = std::any_of(device.links.begin(), device.links.end(),
                               [](const Link& link) { return link.type == LinkType::kC2c; });
  return c2c ? GdrUse::kPciMode : GdrUse::kOn;
}

bool p2p_reads(const System& system, int from, int to) {
  return system.path(NodeType::kGpu, from, NodeType::kGpu, to).type == PathType::kNvl &&
         detail(system, from).sm == kSmAmpere && detail(system, to).sm == kSmAmpere;
}

}  // namespace plexus
