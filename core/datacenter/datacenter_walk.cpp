// SPDX-License-Identifier: Apache-2.0
// The closed walk through all datacenters. Small counts: the best of all orders. Larger counts:
// nearest neighbour first, then improved by exchanging two links. Where no round trip exists: there
// and back along the links of a minimum spanning tree. And that tree itself, with its root.
#include <algorithm>
#include <limits>
#include <numeric>

#include "core/datacenter/datacenter_map.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

constexpr double kNoPath = std::numeric_limits<double>::infinity();

/// Cost of a path: its `cost` if known, else its latency in ms, else 1 per crossing.
class Costs {
 public:
  explicit Costs(std::span<const DatacenterPath> paths, size_t count)
      : paths_(paths),
        count_(count),
        by_cost_(all([](const DatacenterPath& path) { return path.cost.has_value(); })),
        by_latency_(all([](const DatacenterPath& path) { return path.latency_ns.has_value(); })) {}

  [[nodiscard]] double operator()(int from, int to) const {
    const DatacenterPath& path =
        paths_[static_cast<size_t>(from) * count_ + static_cast<size_t>(to)];
    if (!path.connected) {
      return kNoPath;
    }
    if (by_cost_) {
      return static_cast<double>(*path.cost);
    }
    return by_latency_ ? static_cast<double>(*path.latency_ns) / 1e6 : 1;
  }
  [[nodiscard]] double round(const std::vector<int>& order) const {
    double sum = 0;
    for (size_t at = 0; at < order.size(); ++at) {
      sum += (*this)(order[at], order[(at + 1) % order.size()]);
    }
    return sum;
  }

 private:
  template <class Has>
  [[nodiscard]] bool all(const Has& has) const {
    for (size_t at = 0; at < paths_.size(); ++at) {
      if (at / count_ != at % count_ && paths_[at].connected && !has(paths_[at])) {
        return false;
      }
    }
    return true;
  }
  std::span<const DatacenterPath> paths_;
  size_t count_;
  bool by_cost_;
  bool by_latency_;
};

std::vector<int> best_round(const Costs& cost, int count) {
  constexpr int kAllOrdersMax = 8;
  std::vector<int> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::vector<int> best = order;
  if (count <= kAllOrdersMax) {
    while (std::next_permutation(order.begin() + 1, order.end())) {
      best = cost.round(order) < cost.round(best) ? order : best;
    }
    return best;
  }
  for (size_t at = 1; at < best.size(); ++at) {
    const auto nearest = std::min_element(
        best.begin() + static_cast<std::ptrdiff_t>(at), best.end(),
        [&](int a, int b) { return cost(best[at - 1], a) < cost(best[at - 1], b); });
    std::iter_swap(best.begin() + static_cast<std::ptrdiff_t>(at), nearest);
  }
  for (bool better = true; better;) {
    better = false;
    for (size_t first = 1; first + 1 < best.size(); ++first) {
      for (size_t last = first + 1; last < best.size(); ++last) {
        std::vector<int> turned = best;
        std::reverse(turned.begin() + static_cast<std::ptrdiff_t>(first),
                     turned.begin() + static_cast<std::ptrdiff_t>(last) + 1);
        if (cost.round(turned) < cost.round(best)) {
          best = std::move(turned);
          better = true;
        }
      }
    }
  }
  return best;
}

using Neighbours = std::vector<std::vector<int>>;  // by datacenter

/// A minimum spanning tree (Prim). Of equal links the one from the datacenter with the fewest
/// neighbours is taken, so that equal links make a path: no datacenter passes on more than one
/// other's sum. Stops at what no link reaches; `*unreached`: such a datacenter, else -1.
Neighbours span_tree(const Costs& cost, int count, int* unreached) {
  Neighbours joined(static_cast<size_t>(count));
  std::vector<bool> in_tree(static_cast<size_t>(count), false);
  in_tree[0] = true;
  *unreached = -1;
  for (int added = 1; added < count; ++added) {
    std::pair<int, int> best = {-1, -1};
    const auto rank = [&](int from, int to) {
      return std::pair(cost(from, to), joined[static_cast<size_t>(from)].size());
    };
    for (int from = 0; from < count; ++from) {
      for (int to = 0; to < count && in_tree[static_cast<size_t>(from)]; ++to) {
        const bool better = !in_tree[static_cast<size_t>(to)] && cost(from, to) < kNoPath &&
                            (best.first < 0 || rank(from, to) < rank(best.first, best.second));
        best = better ? std::pair(from, to) : best;
      }
    }
    if (best.first < 0) {
      *unreached =
          static_cast<int>(std::find(in_tree.begin(), in_tree.end(), false) - in_tree.begin());
      break;
    }
    in_tree[static_cast<size_t>(best.second)] = true;
    joined[static_cast<size_t>(best.first)].push_back(best.second);
    joined[static_cast<size_t>(best.second)].push_back(best.first);
  }
  return joined;
}

/// Returns, for each datacenter, the one above it in the tree with this root; -1 at the root.
std::vector<int> hang_tree(const Neighbours& joined, int root) {
  std::vector<int> above(joined.size(), -1);
  std::vector<int> open = {root};
  while (!open.empty()) {
    const int at = open.back();
    open.pop_back();
    for (const int to : joined[static_cast<size_t>(at)]) {
      if (to != above[static_cast<size_t>(at)]) {
        above[static_cast<size_t>(to)] = at;
        open.push_back(to);
      }
    }
  }
  return above;
}

/// The cost from the root to the farthest datacenter.
double height(const std::vector<int>& above, const Costs& cost) {
  double most = 0;
  for (size_t from = 0; from < above.size(); ++from) {
    double sum = 0;
    for (int at = static_cast<int>(from); above[static_cast<size_t>(at)] >= 0;
         at = above[static_cast<size_t>(at)]) {
      sum += cost(at, above[static_cast<size_t>(at)]);
    }
    most = std::max(most, sum);
  }
  return most;
}

/// Starts at a leaf, so that a line is walked from end to end and back.
std::vector<int> there_and_back(const Neighbours& joined) {
  const size_t count = joined.size();
  int leaf = 0;
  while (joined[static_cast<size_t>(leaf)].size() != 1) {
    ++leaf;
  }
  // Depth first; every return to a datacenter is a visit. The last return is to the leaf, which is
  // already the first visit.
  std::vector<int> walk = {leaf};
  std::vector<int> above(count, -1);
  std::vector<size_t> next(count, 0);
  for (int at = leaf; at >= 0;) {
    const auto here = static_cast<size_t>(at);
    if (next[here] < joined[here].size()) {
      const int to = joined[here][next[here]++];
      if (to != above[here]) {
        above[static_cast<size_t>(to)] = at;
        walk.push_back(to);
        at = to;
      }
      continue;
    }
    at = above[here];
    if (at >= 0) {
      walk.push_back(at);
    }
  }
  PLEXUS_DCHECK(walk.size() == 2 * count - 1, walk.size(), count);
  walk.pop_back();
  return walk;
}

}  // namespace

Result<std::vector<int>> find_walk(std::span<const DatacenterPath> paths,
                                   std::span<const std::string> names) {
  const int count = static_cast<int>(names.size());
  if (count == 1) {
    return std::vector<int>{0};
  }
  const Costs cost(paths, names.size());
  std::vector<int> round = best_round(cost, count);
  if (cost.round(round) < kNoPath) {
    return round;
  }
  int unreached = -1;
  const Neighbours joined = span_tree(cost, count, &unreached);
  if (unreached >= 0) {
    return fail(
        Code::kInvalidUsage,
        "there is no path from datacenter '{}' to '{}': add a link line to PLEXUS_FABRIC_FILE",
        names[0], names[static_cast<size_t>(unreached)]);
  }
  return there_and_back(joined);
}

std::vector<int> find_tree(std::span<const DatacenterPath> paths, int count) {
  const Costs cost(paths, static_cast<size_t>(count));
  int unreached = -1;
  const Neighbours joined = span_tree(cost, count, &unreached);
  std::vector<int> best = hang_tree(joined, 0);
  for (int root = 1; root < count; ++root) {
    std::vector<int> above = hang_tree(joined, root);
    if (height(above, cost) < height(best, cost)) {
      best = std::move(above);
    }
  }
  return best;
}

std::vector<int> find_tree(int count) {
  DatacenterPath path;
  path.connected = true;
  const auto squared = static_cast<size_t>(count) * static_cast<size_t>(count);
  return find_tree(std::vector(squared, path), count);
}

}  // namespace plexus
