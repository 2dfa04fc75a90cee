// SPDX-License-Identifier: Apache-2.0
#include "core/topo/search_order.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/topo/local.hpp"

namespace plexus {
namespace {

/// Bandwidths compare in whole GB/s: if two differ by less, the shorter path wins.
struct Score {
  int inter_gb_per_s = 0;
  int pci_gb_per_s = 0;
  int inter_hops = 0;
  int intra_gb_per_s = 0;
  int intra_hops = 0;
  int distance = 0;  // in ordinals from the current rank
  int rank = 0;
};

bool comes_first(const Score& left, const Score& right) {
  return std::tuple(-left.inter_gb_per_s, -left.pci_gb_per_s, left.inter_hops, -left.intra_gb_per_s,
                    left.intra_hops, left.distance) <
         std::tuple(-right.inter_gb_per_s, -right.pci_gb_per_s, right.inter_hops,
                    -right.intra_gb_per_s, right.intra_hops, right.distance);
}

void append_new(std::vector<int>& list, int value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) {
    list.push_back(value);
  }
}

/// Remaining bandwidth of the device's PCIe link in the busier direction; -1: no such link.
float device_pci_gb_per_s(const System& system, int rank) {
  const int index = system.index_of(NodeType::kDevice, device_of(system, rank));
  for (const Link& link : system.nodes[static_cast<size_t>(index)].links) {
    if (link.type != LinkType::kPci) {
      continue;
    }
    for (const Link& back : system.nodes[static_cast<size_t>(link.to)].links) {
      if (back.to == index) {
        return std::min(link.gb_per_s, back.gb_per_s);
      }
    }
  }
  return -1;
}

/// A switch works best with few peers: only neighbours in ordinal order are tried.
std::vector<int> keep_neighbours(const std::vector<int>& next,
                                 int rank,
                                 int ranks,
                                 Pattern pattern) {
  const int after = (rank + 1) % ranks;
  const int before = (rank + ranks - 1) % ranks;
  std::vector<int> wanted;
  switch (pattern) {
    case Pattern::kRing:
      wanted = {before, after};
      break;
    case Pattern::kBalancedTree:
    case Pattern::kSplitTree:
      wanted = {after, before};
      break;
    case Pattern::kTree:
    case Pattern::kNvls:
      wanted = {after};
      break;
  }
  std::vector<int> kept;
  for (const int neighbour : wanted) {
    if (std::find(next.begin(), next.end(), neighbour) != next.end()) {
      append_new(kept, neighbour);
    }
  }
  return kept;
}

}  // namespace

SearchOrder::SearchOrder(const System& system, const TopoOptions& options)
    : system_(system), options_(options), ranks_(system.count(NodeType::kGpu)) {
  for (int rank = 0; rank < ranks_; ++rank) {
    std::vector<int> nets;
    for (int channel = 0; channel < kSearchChannelsMax; ++channel) {
      const int net = local_net_of_gpu(system_, options_, rank, channel);
      if (net < 0 || (channel > 0 && net == nets.front())) {
        break;  // no port, or the list repeats
      }
      nets.push_back(net);
    }
    preferred_nets_.push_back(std::move(nets));
  }
}

std::vector<int> SearchOrder::next_ranks(const Attempt& attempt,
                                         const std::vector<uint64_t>& used,
                                         int rank,
                                         int net_in) const {
  const uint64_t flag = uint64_t{1} << attempt.channels;
  std::vector<Score> scores;
  for (int distance = 1; distance < ranks_; ++distance) {
    const int to = (rank + distance) % ranks_;
    if ((used[static_cast<size_t>(to)] & flag) != 0) {
      continue;
    }
    const Path& path = system_.path(NodeType::kGpu, rank, NodeType::kGpu, to);
    Score score;
    score.rank = to;
    score.distance = distance;
    score.intra_gb_per_s = static_cast<int>(path.gb_per_s);
    score.intra_hops = path.length();
    if (net_in != 0) {
      const int net = attempt.nets[static_cast<size_t>(attempt.channels)].in;
      const Path& from_net = system_.path(NodeType::kNet, net, NodeType::kGpu, to);
      score.inter_gb_per_s = static_cast<int>(from_net.gb_per_s);
      score.inter_hops = from_net.length();
      score.pci_gb_per_s = static_cast<int>(device_pci_gb_per_s(system_, to));
    }
    scores.push_back(score);
  }
  std::sort(scores.begin(), scores.end(), comes_first);
  const bool alike = std::all_of(scores.begin(), scores.end(), [&](const Score& score) {
    return score.intra_gb_per_s == scores.front().intra_gb_per_s &&
           score.intra_hops == scores.front().intra_hops;
  });
  if (net_in == -1 && alike) {
    std::reverse(scores.begin(), scores.end());
  }
  std::vector<int> next(scores.size());
  std::transform(scores.begin(), scores.end(), next.begin(),
                 [](const Score& score) { return score.rank; });
  return system_.count(NodeType::kNvs) > 0 ? keep_neighbours(next, rank, ranks_, attempt.pattern)
                                           : next;
}

std::vector<int> SearchOrder::select_nets(PathType worst, int rank) const {
  std::vector<int> nets;
  const int first = rank < 0 ? 0 : rank;
  const int last = rank < 0 ? ranks_ - 1 : rank;
  for (int gpu = first; gpu <= last; ++gpu) {
    for (const int net : preferred_nets_[static_cast<size_t>(gpu)]) {
      append_new(nets, net);
    }
  }
  if (options_.nets_policy == NetPolicy::kMax) {
    return nets;
  }
  for (PathType type = PathType::kLoc; type <= worst; type = next_worse(type)) {
    for (int gpu = first; gpu <= last; ++gpu) {
      for (int net = 0; net < system_.count(NodeType::kNet); ++net) {
        if (system_.path(NodeType::kGpu, gpu, NodeType::kNet, net).type == type) {
          append_new(nets, net);
        }
      }
    }
  }
  return nets;
}

}  // namespace plexus
