// SPDX-License-Identifier: Apache-2.0
// Extended generalised fat trees (Oehring, Ibel, Das, Kumar, "On generalized fat trees", 1995). A
// switch of level l has children[l] below it, a vertex of level l-1 has parents[l] above it. A
// vertex of level l is identified by its position among its relatives above (digits a) and by the
// parent taken on each level below (digits b). The path up is arbitrary; it follows the target's
// number (destination modulo parents), so that flows to different targets spread, and flows to one
// target join late. The path down follows from the target.
//
// Rail-optimised: the same tree with ports in another order, so that the ports of one rail of
// several nodes are on one switch.
#include <numeric>

#include "tools/fabric/network.hpp"

namespace plexus {
namespace {

class FatTree final : public FabricNetwork {
 public:
  struct Shape {
    std::vector<int> children;  // by level, from the lowest
    std::vector<int> parents;
    int nodes = 0;
    int rails = 1;
    int nodes_per_leaf = 0;  // rail-optimised; 0: ports in order
  };

  explicit FatTree(Shape shape) : shape_(std::move(shape)) {
    const int levels = this->levels();
    below_.assign(static_cast<size_t>(levels) + 1, 1);
    width_.assign(static_cast<size_t>(levels) + 1, 1);
    for (int level = 1; level <= levels; ++level) {
      below_[index(level)] = below_[index(level - 1)] * shape_.children[index(level - 1)];
      width_[index(level)] = width_[index(level - 1)] * shape_.parents[index(level - 1)];
    }
    leaves_ = below_.back();
    first_.assign(static_cast<size_t>(levels) + 2, 0);
    for (int level = 1; level <= levels; ++level) {
      const int count = level == 1 ? ports() : count_at(level - 1);
      first_[index(level)] = first_[index(level - 1)] + count;
    }
    first_.back() = first_[index(levels)] + count_at(levels);
  }

  [[nodiscard]] int nodes() const override { return shape_.nodes; }
  [[nodiscard]] int rails() const override { return shape_.rails; }
  [[nodiscard]] int vertices() const override { return first_.back(); }

  void wire(const Wire& wire) const override {
    for (int port = 0; port < ports(); ++port) {
      for (int up = 0; up < shape_.parents[0]; ++up) {
        wire(port, vertex(1, leaf_of(port), up), 1);
      }
    }
    for (int level = 2; level <= levels(); ++level) {
      for (int group = 0; group < leaves_ / below_[index(level - 1)]; ++group) {
        for (int lane = 0; lane < width_[index(level - 1)]; ++lane) {
          for (int up = 0; up < shape_.parents[index(level - 1)]; ++up) {
            const int leaf = group * below_[index(level - 1)];
            wire(vertex(level - 1, leaf, lane),
                 vertex(level, leaf, lane + up * width_[index(level - 1)]), 1);
          }
        }
      }
    }
  }

  void find_path(int from, int to, std::vector<int>& path) const override {
    if (from == to) {
      path.push_back(from);
      return;
    }
    int top = 1;
    while (leaf_of(from) / below_[index(top)] != leaf_of(to) / below_[index(top)]) {
      ++top;
    }
    climb(from, leaf_of(to), top, path);
    for (int level = top - 1; level >= 1; --level) {
      path.push_back(vertex(level, leaf_of(to), lane_to(leaf_of(to), level)));
    }
    path.push_back(to);
  }

  [[nodiscard]] std::vector<int> border() const override {
    std::vector<int> tops(static_cast<size_t>(count_at(levels())));
    std::iota(tops.begin(), tops.end(), first_[index(levels())]);
    return tops;
  }

  void find_path_out(int from, int remote, std::vector<int>& path) const override {
    climb(from, remote, levels(), path);
  }

 private:
  static size_t index(int level) { return static_cast<size_t>(level); }
  [[nodiscard]] int levels() const { return static_cast<int>(shape_.children.size()); }
  [[nodiscard]] int count_at(int level) const {
    return leaves_ / below_[index(level)] * width_[index(level)];
  }

  /// Position of a port in the tree's order.
  [[nodiscard]] int leaf_of(int port) const {
    if (shape_.nodes_per_leaf == 0) {
      return port;
    }
    const int node = port / shape_.rails;
    const int rail = port % shape_.rails;
    const int per_leaf = shape_.nodes_per_leaf;
    return (node / per_leaf * shape_.rails + rail) * per_leaf + node % per_leaf;
  }

  /// The switch of `level` above `leaf` in lane `lane` (digits b of all levels up to it).
  [[nodiscard]] int vertex(int level, int leaf, int lane) const {
    return first_[index(level)] + leaf / below_[index(level)] * width_[index(level)] + lane;
  }

  /// The lane of traffic to `target` at `level`.
  [[nodiscard]] int lane_to(int target, int level) const { return target % width_[index(level)]; }

  void climb(int from, int target, int top, std::vector<int>& path) const {
    path.push_back(from);
    for (int level = 1; level <= top; ++level) {
      path.push_back(vertex(level, leaf_of(from), lane_to(target, level)));
    }
  }

  Shape shape_;
  std::vector<int> below_;  // by level: leaves below a switch
  std::vector<int> width_;  // by level: lanes
  std::vector<int> first_;  // by level: its first vertex
  int leaves_ = 0;          // positions in the tree; the last ones may be empty
};

Result<std::unique_ptr<FabricNetwork>> make_tree(FatTree::Shape shape) {
  int64_t vertices = int64_t{shape.nodes} * shape.rails;
  int64_t leaves = 1;
  int64_t width = 1;
  for (const int children : shape.children) {
    PLEXUS_TRY(product, multiply({leaves, children}));
    leaves = product;
  }
  if (leaves < vertices) {
    return fail(Code::kInvalidUsage, "children= gives {} places, but {} ports are needed", leaves,
                vertices);
  }
  int64_t below = 1;
  for (size_t level = 0; level < shape.children.size(); ++level) {
    below *= shape.children[level];
    PLEXUS_TRY(product, multiply({width, shape.parents[level]}));
    width = product;
    PLEXUS_TRY(here, multiply({leaves / below, width}));
    vertices += here;
    PLEXUS_TRY(cables, multiply({leaves / below * width, shape.children[level]}));
    PLEXUS_TRY(multiply({vertices + cables}));
  }
  return std::unique_ptr<FabricNetwork>(std::make_unique<FatTree>(std::move(shape)));
}

}  // namespace

Result<std::unique_ptr<FabricNetwork>> make_fat_tree(FabricWords& words) {
  FatTree::Shape shape;
  PLEXUS_TRY(nodes, take_count(words, "nodes"));
  PLEXUS_TRY(rails, take_count(words, "rails", 1));
  PLEXUS_TRY(children, take_counts(words, "children", ','));
  PLEXUS_TRY(parents, take_counts(words, "parents", ','));
  if (children.size() != parents.size()) {
    return fail(Code::kInvalidUsage, "children= has {} levels, but parents= has {}",
                children.size(), parents.size());
  }
  PLEXUS_TRY(multiply({nodes, rails}));
  shape.nodes = nodes;
  shape.rails = rails;
  shape.children = std::move(children);
  shape.parents = std::move(parents);
  return make_tree(std::move(shape));
}

Result<std::unique_ptr<FabricNetwork>> make_rail_tree(FabricWords& words) {
  FatTree::Shape shape;
  PLEXUS_TRY(nodes, take_count(words, "nodes"));
  PLEXUS_TRY(rails, take_count(words, "rails"));
  PLEXUS_TRY(per_leaf, take_count(words, "leaf"));
  PLEXUS_TRY(spines, take_count(words, "spines"));
  const int blocks = (nodes + per_leaf - 1) / per_leaf;
  PLEXUS_TRY(switches, multiply({blocks, rails}));
  PLEXUS_TRY(multiply({switches, per_leaf}));
  shape.nodes = nodes;
  shape.rails = rails;
  shape.children = {per_leaf, switches};
  shape.parents = {1, spines};
  shape.nodes_per_leaf = per_leaf;
  return make_tree(std::move(shape));
}

}  // namespace plexus
