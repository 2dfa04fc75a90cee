// SPDX-License-Identifier: Apache-2.0
// Networks whose nodes are their own switches. Torus and mesh of any number of dimensions: routes
// take one dimension after the other, each in the shorter direction (ascending coordinates if both
// are equal). Hypercube: routes change the bits that differ, from the lowest.
#include <algorithm>

#include "tools/fabric/network.hpp"

namespace plexus {
namespace {

class Torus final : public FabricNetwork {
 public:
  Torus(std::vector<int> sizes, bool wraps) : sizes_(std::move(sizes)), wraps_(wraps) {
    for (const int size : sizes_) {
      strides_.push_back(nodes_);
      nodes_ *= size;
    }
  }

  [[nodiscard]] int nodes() const override { return nodes_; }
  [[nodiscard]] int vertices() const override { return nodes_; }

  void wire(const Wire& wire) const override {
    for (int node = 0; node < nodes_; ++node) {
      for (size_t dimension = 0; dimension < sizes_.size(); ++dimension) {
        const int size = sizes_[dimension];
        const int at = coordinate(node, dimension);
        if (at + 1 < size) {
          wire(node, node + strides_[dimension], 1);
        } else if (wraps_ && size > 2) {
          wire(node, node - at * strides_[dimension], 1);
        }
      }
    }
  }

  void find_path(int from, int to, std::vector<int>& path) const override {
    path.push_back(from);
    int at = from;
    for (size_t dimension = 0; dimension < sizes_.size(); ++dimension) {
      const int size = sizes_[dimension];
      const int target = coordinate(to, dimension);
      const int ahead = (target - coordinate(at, dimension) + size) % size;
      const bool rising =
          wraps_ && size > 2 ? 2 * ahead <= size : target > coordinate(at, dimension);
      while (coordinate(at, dimension) != target) {
        const int here = coordinate(at, dimension);
        const int next = (here + (rising ? 1 : size - 1)) % size;
        at += (next - here) * strides_[dimension];
        path.push_back(at);
      }
    }
  }

  /// The nodes whose coordinates are 0 but for the first: a line.
  [[nodiscard]] std::vector<int> border() const override {
    std::vector<int> line;
    for (int node = 0; node < sizes_[0]; ++node) {
      line.push_back(node);
    }
    return line;
  }
  void find_path_out(int from, int remote, std::vector<int>& path) const override {
    find_path(from, remote % sizes_[0], path);
  }

 private:
  [[nodiscard]] int coordinate(int node, size_t dimension) const {
    return node / strides_[dimension] % sizes_[dimension];
  }
  std::vector<int> sizes_;
  std::vector<int> strides_;
  bool wraps_;
  int nodes_ = 1;
};

class Hypercube final : public FabricNetwork {
 public:
  explicit Hypercube(int dimensions) : dimensions_(dimensions) {}

  [[nodiscard]] int nodes() const override { return 1 << dimensions_; }
  [[nodiscard]] int vertices() const override { return nodes(); }

  void wire(const Wire& wire) const override {
    for (int node = 0; node < nodes(); ++node) {
      for (int bit = 0; bit < dimensions_; ++bit) {
        if ((node & (1 << bit)) == 0) {
          wire(node, node | (1 << bit), 1);
        }
      }
    }
  }

  void find_path(int from, int to, std::vector<int>& path) const override {
    path.push_back(from);
    for (int bit = 0; bit < dimensions_; ++bit) {
      if (((from ^ to) & (1 << bit)) != 0) {
        from ^= 1 << bit;
        path.push_back(from);
      }
    }
  }

  [[nodiscard]] std::vector<int> border() const override { return {0}; }
  void find_path_out(int from, int /*remote*/, std::vector<int>& path) const override {
    find_path(from, 0, path);
  }

 private:
  int dimensions_;
};

}  // namespace

Result<std::unique_ptr<FabricNetwork>> make_torus(FabricWords& words) {
  PLEXUS_TRY(sizes, take_counts(words, "size", 'x'));
  PLEXUS_TRY(ends, take_word(words, "ends", "joined"));
  int64_t nodes = 1;
  for (const int size : sizes) {
    PLEXUS_TRY(product, multiply({nodes, size}));
    nodes = product;
  }
  PLEXUS_TRY(multiply({nodes, static_cast<int64_t>(sizes.size())}));
  if (ends != "joined" && ends != "open") {
    return fail(Code::kInvalidUsage, "ends={} is neither joined (torus) nor open (mesh)", ends);
  }
  return std::unique_ptr<FabricNetwork>(
      std::make_unique<Torus>(std::move(sizes), ends == "joined"));
}

Result<std::unique_ptr<FabricNetwork>> make_hypercube(FabricWords& words) {
  constexpr int kDimensionsMax = 20;
  PLEXUS_TRY(dimensions, take_count(words, "dimensions"));
  if (dimensions > kDimensionsMax) {
    return fail(Code::kInvalidUsage, "dimensions={} is greater than {}", dimensions,
                kDimensionsMax);
  }
  return std::unique_ptr<FabricNetwork>(std::make_unique<Hypercube>(dimensions));
}

}  // namespace plexus
