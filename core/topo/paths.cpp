// SPDX-License-Identifier: Apache-2.0
#include "core/topo/paths.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/topo/decisions.hpp"
#include "core/topo/local.hpp"

namespace plexus {
namespace {

constexpr std::array kTargets = {NodeType::kCpu, NodeType::kDevice, NodeType::kGpu, NodeType::kNet,
                                 NodeType::kNvs};

Node& at(System& system, int index) { return system.nodes[static_cast<size_t>(index)]; }

/// Computes the paths of all nodes to one target.
class PathSearch {
 public:
  PathSearch(System& system, const TopoOptions& options, NodeType type, int ordinal)
      : system_(system),
        options_(options),
        type_(type),
        ordinal_(ordinal),
        target_(system.index_of(type, ordinal)) {}

  void run() {
    path_of(target_) = {.hops = {}, .gb_per_s = kLocalGbPerS, .type = PathType::kLoc};
    std::vector<int> front = {target_};
    while (!front.empty()) {
      std::vector<int> next;
      for (const int index : front) {
        widen_front(index, next);
      }
      front = std::move(next);
    }
  }

 private:
  /// Follows all links of a node; neighbours whose path improved go to `next`.
  void widen_front(int index, std::vector<int>& next) {
    const int links = static_cast<int>(at(system_, index).links.size());
    for (int link = 0; link < links; ++link) {
      const int to = at(system_, index).links[static_cast<size_t>(link)].to;
      if (follow(index, link) && std::find(next.begin(), next.end(), to) == next.end()) {
        next.push_back(to);
      }
    }
  }

  Path& path_of(int index) {
    return at(system_, index)
        .paths.at(static_cast<size_t>(type_))
        .at(static_cast<size_t>(ordinal_));
  }

  /// Whether paths to the target may pass through `index` and reach it over this link.
  [[nodiscard]] bool may_pass(int index, const Link& link) {
    const Node& node = at(system_, index);
    const Node& neighbour = at(system_, link.to);
    if (index == target_ || (node.type != NodeType::kDevice && node.type != NodeType::kGpu)) {
      return true;
    }
    if (node.type == NodeType::kGpu) {
      // A rank has no link but to its own device, which is visited before it.
      return false;
    }
    if (neighbour.type == NodeType::kGpu) {
      return true;
    }
    if (is_own_device(index)) {
      return true;
    }
    // Another device in between may relay one device, over NVLink in both hops.
    return !options_.nvb_disable && link.type == LinkType::kNvl &&
           neighbour.type == NodeType::kDevice && passed_devices(index) == 0 &&
           path_of(index).type <= PathType::kNvl && comes_over_device(index);
  }

  /// Whether the target is a rank that computes on `index`.
  [[nodiscard]] bool is_own_device(int index) {
    return type_ == NodeType::kGpu && path_of(index).length() == 1;
  }
  /// Whether the path from `index` goes directly to another device, not through a switch.
  [[nodiscard]] bool comes_over_device(int index) {
    return at(system_, system_.link(path_of(index).hops.front()).to).type == NodeType::kDevice;
  }
  /// Number of devices strictly between `index` and the target's own device.
  [[nodiscard]] int passed_devices(int index) {
    int devices = 0;
    for (const Hop& hop : path_of(index).hops) {
      devices += at(system_, system_.link(hop).to).type == NodeType::kDevice ? 1 : 0;
    }
    return std::max(0, devices - 1);
  }

  [[nodiscard]] PathType type_over(int index, const Link& link, const Path& path) {
    const NodeType here = at(system_, index).type;
    const NodeType there = at(system_, link.to).type;
    auto type = link.type == LinkType::kNet
                    ? PathType::kLoc
                    : static_cast<PathType>(static_cast<uint8_t>(link.type));
    if (here == NodeType::kPci && there == NodeType::kPci) {
      type = PathType::kPxb;
    }
    if (link.type == LinkType::kPci && (here == NodeType::kCpu || there == NodeType::kCpu)) {
      type = PathType::kPhb;
    }
    if (here == NodeType::kDevice && index != target_ && !is_own_device(index) &&
        path.type == PathType::kNvl && link.type == LinkType::kNvl) {
      type = PathType::kNvb;
    }
    return worse(path.type, type);
  }

  /// Returns whether the neighbour's path improved by going over `index`.
  bool follow(int index, int link_index) {
    const Link link = at(system_, index).links[static_cast<size_t>(link_index)];
    if (!may_pass(index, link)) {
      return false;
    }
    const Path& path = path_of(index);
    const float gb_per_s = std::min(path.gb_per_s, link.gb_per_s);
    const PathType type = type_over(index, link, path);
    Path& known = path_of(link.to);
    const int length = path.length() + 1;
    const bool better = type != known.type           ? type < known.type
                        : gb_per_s != known.gb_per_s ? gb_per_s > known.gb_per_s
                                                     : length < known.length();
    if (!better) {
      return false;
    }
    Path found{.hops = {reverse(index, link)}, .gb_per_s = gb_per_s, .type = type};
    found.hops.insert(found.hops.end(), path.hops.begin(), path.hops.end());
    known = std::move(found);
    return true;
  }

  /// The opposite link; build_system ensures that every link has one.
  [[nodiscard]] Hop reverse(int index, const Link& link) {
    const std::vector<Link>& links = at(system_, link.to).links;
    const auto back = std::find_if(links.begin(), links.end(), [&](const Link& candidate) {
      return candidate.to == index && candidate.type == link.type;
    });
    return {.from = link.to, .link = static_cast<int>(back - links.begin())};
  }

  System& system_;
  const TopoOptions& options_;
  NodeType type_;
  int ordinal_;
  int target_;
};

void spread_paths(System& system, const TopoOptions& options) {
  for (Node& node : system.nodes) {
    for (const NodeType type : kTargets) {
      node.paths.at(static_cast<size_t>(type)).assign(static_cast<size_t>(system.count(type)), {});
    }
  }
  for (const NodeType type : kTargets) {
    for (int ordinal = 0; ordinal < system.count(type); ++ordinal) {
      PathSearch(system, options, type, ordinal).run();
    }
  }
}

struct End {
  NodeType type;
  int ordinal;
};

/// The type of two paths that meet at a CPU: C2C to it and then PCIe are P2C, not PHB.
PathType joined_type(PathType first, PathType second) {
  const bool c2c = first == PathType::kC2c || second == PathType::kC2c;
  const PathType type = worse(first, second);
  return c2c && type == PathType::kPhb ? PathType::kP2c : type;
}

/// Redirects the path from `from` to `to` over `via`.
void detour(System& system, End from, End via, End to) {
  const Path& first = system.path(from.type, from.ordinal, via.type, via.ordinal);
  const Path& second = system.path(via.type, via.ordinal, to.type, to.ordinal);
  Path path{
      .hops = first.hops,
      .gb_per_s = std::min(first.gb_per_s, second.gb_per_s),
      .type = via.type == NodeType::kGpu ? PathType::kPxn : joined_type(first.type, second.type)};
  path.hops.insert(path.hops.end(), second.hops.begin(), second.hops.end());
  system.node(from.type, from.ordinal)
      .paths.at(static_cast<size_t>(to.type))
      .at(static_cast<size_t>(to.ordinal)) = std::move(path);
}

void apply_peer_access(System& system, const TopoOptions& options) {
  for (int to = 0; to < system.count(NodeType::kGpu); ++to) {
    for (int from = 0; from < system.count(NodeType::kGpu); ++from) {
      if (from == to) {
        continue;
      }
      // Ranks on one device need no access to a peer.
      if (system.path(NodeType::kGpu, from, NodeType::kGpu, to).type != PathType::kLoc &&
          !p2p_allowed(system, options, from, to)) {
        detour(system, {NodeType::kGpu, from}, {NodeType::kCpu, local_cpu_of_gpu(system, to)},
               {NodeType::kGpu, to});
      }
      if (!connected_inside(system, options, from, to)) {
        system.node(NodeType::kGpu, from)
            .paths.at(static_cast<size_t>(NodeType::kGpu))
            .at(static_cast<size_t>(to))
            .type = PathType::kNet;
      }
    }
  }
}

/// A NIC on the CPU that the GPU reaches by C2C counts as near as one on the GPU's own switch.
void apply_c2c(System& system) {
  for (int gpu = 0; gpu < system.count(NodeType::kGpu); ++gpu) {
    const int cpu = local_cpu_of_gpu(system, gpu);
    if (system.path(NodeType::kGpu, gpu, NodeType::kCpu, cpu).type != PathType::kC2c) {
      continue;
    }
    const Nearest nets = nearest(system, NodeType::kGpu, gpu, NodeType::kNet);
    if (nets.type != PathType::kPhb) {
      continue;
    }
    for (const int net : nets.ordinals) {
      system.node(NodeType::kGpu, gpu)
          .paths.at(static_cast<size_t>(NodeType::kNet))
          .at(static_cast<size_t>(net))
          .type = PathType::kP2c;
      system.node(NodeType::kNet, net)
          .paths.at(static_cast<size_t>(NodeType::kGpu))
          .at(static_cast<size_t>(gpu))
          .type = PathType::kP2c;
    }
  }
}

bool relay_is_better(
    const System& system, const TopoOptions& options, int gpu, int relay, int net) {
  const PathType farthest = options.pxn_c2c ? PathType::kP2c : PathType::kPxb;
  const Path& relay_to_net = system.path(NodeType::kGpu, relay, NodeType::kNet, net);
  const Path& own = system.path(NodeType::kGpu, gpu, NodeType::kNet, net);
  return relay_to_net.type <= farthest &&
         gdr_use(system, options, relay, net, true) != GdrUse::kOff &&
         system.path(NodeType::kGpu, relay, NodeType::kGpu, gpu).type <= PathType::kNvl &&
         system.node(NodeType::kGpu, relay).host == system.node(NodeType::kGpu, gpu).host &&
         (relay_to_net.gb_per_s > own.gb_per_s || own.type > PathType::kPxn);
}

void apply_net_rules(System& system, const TopoOptions& options) {
  for (int net = 0; net < system.count(NodeType::kNet); ++net) {
    for (int gpu = 0; gpu < system.count(NodeType::kGpu); ++gpu) {
      const int relay = options.pxn_disable ? -1 : local_gpu_of_net(system, options, net);
      if (relay >= 0 && relay != gpu && relay_is_better(system, options, gpu, relay, net)) {
        detour(system, {NodeType::kGpu, gpu}, {NodeType::kGpu, relay}, {NodeType::kNet, net});
      }
      if (system.path(NodeType::kGpu, gpu, NodeType::kNet, net).type < PathType::kPhb &&
          gdr_use(system, options, gpu, net, false) == GdrUse::kOff) {
        const End cpu = {NodeType::kCpu, local_cpu_of_gpu(system, gpu)};
        detour(system, {NodeType::kNet, net}, cpu, {NodeType::kGpu, gpu});
        detour(system, {NodeType::kGpu, gpu}, cpu, {NodeType::kNet, net});
      }
    }
  }
  for (int net = 0; net < system.count(NodeType::kNet); ++net) {
    system.node(NodeType::kNet, net).net.local_gpu = local_gpu_of_net(system, options, net);
  }
}

void compute_bandwidths(System& system) {
  if (system.count(NodeType::kGpu) == 1 && !system.inter) {
    system.max_gb_per_s = kLocalGbPerS;
    system.total_gb_per_s = kLocalGbPerS;
    return;
  }
  const NodeType to = system.inter ? NodeType::kNet : NodeType::kDevice;
  system.max_gb_per_s = 0;
  system.total_gb_per_s = 0;
  for (int device = 0; device < system.count(NodeType::kDevice); ++device) {
    for (int other = 0; other < system.count(to); ++other) {
      if (to == NodeType::kNet || other != device) {
        system.max_gb_per_s = std::max(system.max_gb_per_s,
                                       system.path(NodeType::kDevice, device, to, other).gb_per_s);
      }
    }
    float nvlink = 0;
    float pci = 0;
    for (const Link& link : system.node(NodeType::kDevice, device).links) {
      nvlink += link.type == LinkType::kNvl ? link.gb_per_s : 0;
      pci = link.type == LinkType::kPci ? link.gb_per_s : pci;
    }
    system.total_gb_per_s = std::max(system.total_gb_per_s, std::max(nvlink, pci));
  }
}

bool has_nvlink(const System& system, int rank) {
  const Node& device = system.node(NodeType::kDevice, device_of(system, rank));
  return std::any_of(device.links.begin(), device.links.end(),
                     [](const Link& link) { return link.type == LinkType::kNvl; });
}

}  // namespace

void compute_paths(System& system, const TopoOptions& options) {
  spread_paths(system, options);
  apply_peer_access(system, options);
  apply_c2c(system);
  apply_net_rules(system, options);
  compute_bandwidths(system);
}

std::vector<System> split_by_reach(const System& system, const TopoOptions& options, bool inter) {
  System whole = system;
  whole.inter = inter;
  compute_paths(whole, options);
  const int ranks = whole.count(NodeType::kGpu);
  std::vector<int> part(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    int& own = part[static_cast<size_t>(rank)] = rank;
    for (int before = 0; before < rank; ++before) {
      if (whole.path(NodeType::kGpu, rank, NodeType::kGpu, before).type < PathType::kNet) {
        own = std::min(own, part[static_cast<size_t>(before)]);
      }
    }
  }
  if (std::all_of(part.begin(), part.end(), [](int number) { return number == 0; })) {
    return {std::move(whole)};
  }
  std::vector<System> parts;
  for (int number = 0; number < ranks; ++number) {
    std::vector<bool> keep(part.size());
    std::transform(part.begin(), part.end(), keep.begin(),
                   [number](int of) { return of == number; });
    if (std::find(keep.begin(), keep.end(), true) != keep.end()) {
      System one = without_ranks(whole, keep);
      one.inter = true;
      compute_paths(one, options);
      parts.push_back(std::move(one));
    }
  }
  return parts;
}

std::vector<std::string> nvlink_warnings(std::span<const System> parts) {
  std::vector<const Node*> with;
  std::vector<const Node*> without;
  for (const System& part : parts) {
    for (int rank = 0; rank < part.count(NodeType::kGpu); ++rank) {
      const Node& node = part.node(NodeType::kGpu, rank);
      if (!node.rank.is_host) {
        (has_nvlink(part, rank) ? with : without).push_back(&node);
      }
    }
  }
  std::vector<std::string> sentences;
  if (with.size() > without.size()) {
    for (const Node* const node : without) {
      sentences.push_back(fmt::format(
          "GPU {} ({}, rank {}) has no NVLink while those of {} other ranks of its host have: the "
          "host's channels become few and slow, or leave it out; check it with nvidia-smi nvlink "
          "--status",
          node->rank.device, bus_id_text(node->id), node->rank.rank, with.size()));
    }
  }
  return sentences;
}

}  // namespace plexus
