// SPDX-License-Identifier: Apache-2.0
#include "core/topo/local.hpp"

#include <algorithm>
#include <bit>

#include "core/base/units.hpp"

namespace plexus {
namespace {

/// Reverses the bits of `value`, which is below `count` (a power of two).
int mirror_bits(int value, int count) {
  int mirrored = 0;
  for (int bit = 1; bit < count; bit <<= 1) {
    mirrored = (mirrored << 1) | ((value & bit) != 0 ? 1 : 0);
  }
  return mirrored;
}

int nets_per_gpu(const TopoOptions& options, int nets, int gpus) {
  switch (options.nets_policy) {
    case NetPolicy::kAll:
      return nets;
    case NetPolicy::kMax:
      return std::clamp(options.nets_per_gpu_max, 1, nets);
    case NetPolicy::kAuto:
      break;
  }
  return div_ceil(nets, gpus);
}

}  // namespace

Nearest nearest(const System& system, NodeType from, int ordinal, NodeType to) {
  Nearest best;
  float widest = 0;
  for (int i = 0; i < system.count(to); ++i) {
    const Path& path = system.path(from, ordinal, to, i);
    const bool better =
        path.gb_per_s > widest || (path.gb_per_s == widest && path.type < best.type);
    if (better) {
      widest = path.gb_per_s;
      best.type = path.type;
      best.ordinals.clear();
    }
    if (path.gb_per_s == widest && path.type == best.type && path.type < PathType::kDis) {
      best.ordinals.push_back(i);
    }
  }
  return best;
}

int local_net_of_gpu(const System& system, const TopoOptions& options, int rank, int channel) {
  const std::vector<int> nets = nearest(system, NodeType::kGpu, rank, NodeType::kNet).ordinals;
  if (nets.empty()) {
    return -1;
  }
  const int net_count = static_cast<int>(nets.size());
  const int gpu_count = std::max<int>(
      1, static_cast<int>(
             nearest(system, NodeType::kNet, nets.front(), NodeType::kGpu).ordinals.size()));
  int index = system.node(NodeType::kGpu, rank).rank.device;
  if (index < 0) {
    index = rank;  // host ranks have no device number
  }
  index %= gpu_count;
  if (std::has_single_bit(static_cast<unsigned>(net_count))) {
    index = mirror_bits(index, net_count);
  }
  index += channel % nets_per_gpu(options, net_count, gpu_count);
  return system.node(NodeType::kNet, nets[static_cast<size_t>(index % net_count)]).net.first;
}

int local_gpu_of_net(const System& system, const TopoOptions& options, int net) {
  const int first = system.node(NodeType::kNet, net).net.first;
  const std::vector<int> gpus = nearest(system, NodeType::kNet, first, NodeType::kGpu).ordinals;
  for (int channel = 0; channel < kSearchChannelsMax; ++channel) {
    for (const int gpu : gpus) {
      if (local_net_of_gpu(system, options, gpu, channel) == first) {
        return gpu;
      }
    }
  }
  return -1;
}

int local_cpu_of_gpu(const System& system, int rank) {
  int best = 0;
  for (int cpu = 1; cpu < system.count(NodeType::kCpu); ++cpu) {
    const Path& known = system.path(NodeType::kGpu, rank, NodeType::kCpu, best);
    const Path& path = system.path(NodeType::kGpu, rank, NodeType::kCpu, cpu);
    if (path.gb_per_s != known.gb_per_s ? path.gb_per_s > known.gb_per_s
        : path.type != known.type       ? path.type < known.type
                                        : path.length() < known.length()) {
      best = cpu;
    }
  }
  return best;
}

int device_of(const System& system, int rank) {
  for (const Link& link : system.node(NodeType::kGpu, rank).links) {
    const Node& neighbour = system.nodes[static_cast<size_t>(link.to)];
    if (neighbour.type == NodeType::kDevice) {
      return neighbour.ordinal;
    }
  }
  return -1;  // build_system gives every rank a device
}

}  // namespace plexus
