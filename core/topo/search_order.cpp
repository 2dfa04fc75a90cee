// SPDX-License-Identifier: Apache-2.0
// The order in which the search tries ranks and NICs (part of SearchState).
#include <algorithm>
#include <tuple>

#include "core/topo/search_state.hpp"

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

}  // namespace

/// `net_in` 1: the next rank goes to the NIC; -1: a later rank does; 0: no NIC.
std::vector<int> SearchState::next_ranks(int rank, int net_in) const {
  const uint64_t flag = uint64_t{1} << attempt_->channels;
  std::vector<Score> scores;
  for (int distance = 1; distance < ranks_; ++distance) {
    const int to = (rank + distance) % ranks_;
    if ((used_[static_cast<size_t>(to)] & flag) != 0) {
      continue;
    }
    const Path& path = system_.path(NodeType::kGpu, rank, NodeType::kGpu, to);
    Score score;
    score.rank = to;
    score.distance = distance;
    score.intra_gb_per_s = static_cast<int>(path.gb_per_s);
    score.intra_hops = path.length();
    if (net_in != 0) {
      const int net = attempt_->nets[static_cast<size_t>(attempt_->channels)].in;
      const Path& from_net = system_.path(NodeType::kNet, net, NodeType::kGpu, to);
      score.inter_gb_per_s = static_cast<int>(from_net.gb_per_s);
      score.inter_hops = from_net.length();
      score.pci_gb_per_s = static_cast<int>(device_pci_gb_per_s(to));
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
  return system_.count(NodeType::kNvs) > 0 ? keep_neighbours(std::move(next), rank) : next;
}

/// A switch works best with few peers: only neighbours in ordinal order are tried.
std::vector<int> SearchState::keep_neighbours(std::vector<int> next, int rank) const {
  const int after = (rank + 1) % ranks_;
  const int before = (rank + ranks_ - 1) % ranks_;
  std::vector<int> wanted;
  switch (attempt_->pattern) {
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

void SearchState::append_nets_of_type(int rank, PathType type, std::vector<int>& nets) const {
  for (int net = 0; net < system_.count(NodeType::kNet); ++net) {
    if (system_.path(NodeType::kGpu, rank, NodeType::kNet, net).type == type) {
      append_new(nets, net);
    }
  }
}

/// Ports in the order to try; `rank` -1: the ports of all ranks.
std::vector<int> SearchState::select_nets(int rank) const {
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
  for (PathType type = PathType::kLoc; type <= attempt_->inter_type; type = next_worse(type)) {
    for (int gpu = first; gpu <= last; ++gpu) {
      append_nets_of_type(gpu, type, nets);
    }
  }
  return nets;
}

/// Remaining bandwidth of the device's PCIe link in the busier direction; -1: no such link.
float SearchState::device_pci_gb_per_s(int rank) const {
  const int index = system_.index_of(NodeType::kDevice, device_of(system_, rank));
  for (const Link& link : system_.nodes[static_cast<size_t>(index)].links) {
    if (link.type != LinkType::kPci) {
      continue;
    }
    for (const Link& back : system_.nodes[static_cast<size_t>(link.to)].links) {
      if (back.to == index) {
        return std::min(link.gb_per_s, back.gb_per_s);
      }
    }
  }
  return -1;
}

}  // namespace plexus
