// SPDX-License-Identifier: Apache-2.0
// The network of one datacenter: its vertices, its cables, and the path between two NICs by
// formula. Vertices 0..ports-1 are the NICs (node * rails + rail); switches follow.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.hpp"

namespace plexus {

struct CableProperties {
  double gbit_per_s = 0;
  double latency_us = 0;
};

class FabricNetwork {
 public:
  FabricNetwork() = default;
  virtual ~FabricNetwork() = default;
  FabricNetwork(const FabricNetwork&) = delete;
  FabricNetwork& operator=(const FabricNetwork&) = delete;

  [[nodiscard]] virtual int nodes() const = 0;
  [[nodiscard]] virtual int rails() const { return 1; }
  [[nodiscard]] virtual int vertices() const = 0;
  [[nodiscard]] int ports() const { return nodes() * rails(); }

  /// Called once for each pair of neighbours, with the number of cables.
  using Wire = std::function<void(int a, int b, int cables)>;
  virtual void wire(const Wire& wire) const = 0;

  /// Appends the vertices from port `from` to port `to`, both included, to `path`.
  virtual void find_path(int from, int to, std::vector<int>& path) const = 0;

  /// The vertices from which cables lead to other datacenters.
  [[nodiscard]] virtual std::vector<int> border() const = 0;
  /// Appends the vertices from port `from` to the border vertex used by traffic with port number
  /// `remote` of another datacenter to `path`; the way back is the same.
  virtual void find_path_out(int from, int remote, std::vector<int>& path) const = 0;

  CableProperties cable;
};

/// Words of a line: key -> value, in order.
using FabricWords = std::vector<std::pair<std::string, std::string>>;

/// A larger number of vertices is taken for a typing error.
inline constexpr int64_t kFabricVerticesMax = int64_t{1} << 24;

/// Each takes its own keys out of `words`.
Result<std::unique_ptr<FabricNetwork>> make_fat_tree(FabricWords& words);
Result<std::unique_ptr<FabricNetwork>> make_rail_tree(FabricWords& words);
Result<std::unique_ptr<FabricNetwork>> make_dragonfly(FabricWords& words);
Result<std::unique_ptr<FabricNetwork>> make_dragonfly_plus(FabricWords& words);
Result<std::unique_ptr<FabricNetwork>> make_torus(FabricWords& words);
Result<std::unique_ptr<FabricNetwork>> make_hypercube(FabricWords& words);

// -- words --
/// Takes `key` out; `otherwise` < 0: it is required. An integer in 1..kFabricVerticesMax.
Result<int> take_count(FabricWords& words, std::string_view key, int otherwise = -1);
/// Counts separated by `separator`, at least one and at most 16.
Result<std::vector<int>> take_counts(FabricWords& words, std::string_view key, char separator);
/// A number above 0 and at most a million.
Result<double> take_number(FabricWords& words, std::string_view key, double otherwise = -1);
Result<std::string> take_word(FabricWords& words, std::string_view key, std::string otherwise);
/// The product; an Error when it exceeds kFabricVerticesMax.
Result<int> multiply(std::initializer_list<int64_t> factors);

}  // namespace plexus
