// SPDX-License-Identifier: Apache-2.0
// How much each rank sends to each other one in `alltoallv`: the patterns of nccl-tests, which its
// variables NCCL_TESTS_ALLTOALLV_* choose. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"

namespace plexus::perf {

class Traffic {
 public:
  /// What a rank sends is split over its peers. `spread` 0: evenly; 1: in proportion to how many
  /// ranks after it the peer is, to itself nothing; between: a mixture of both.
  explicit Traffic(double spread) : spread_(spread) {}

  /// A square matrix of words that are numbers: row i, column j is what rank i sends to rank j, in
  /// bytes, times `scale`. kInvalidArgument names the row and column that is wrong.
  [[nodiscard]] static Result<Traffic> parse(std::string_view text, double scale);

  /// Bytes from `source` to `target`, a multiple of 16. `total_bytes`: what each rank sends in all;
  /// a matrix has its own sizes instead.
  [[nodiscard]] size_t bytes(int source, int target, int nranks, size_t total_bytes) const noexcept;
  /// The most that a rank sends or receives.
  [[nodiscard]] size_t largest_bytes(int nranks, size_t total_bytes) const noexcept;
  /// Ranks of the matrix; 0: there is none, and any number fits.
  [[nodiscard]] int matrix_ranks() const noexcept { return matrix_ranks_; }

  static constexpr size_t kTextBytesMax = size_t{64} << 20U;

 private:
  double spread_ = 1;
  int matrix_ranks_ = 0;
  std::vector<uint64_t> matrix_;  // [source][target]
};

}  // namespace plexus::perf
