// SPDX-License-Identifier: Apache-2.0
// `Expressions`: the values of the verifier's symbolic execution. A value is the combination of
// contributions in a certain order. Equal expressions have equal numbers (each is stored once), so
// that "the same bits on all ranks" is a comparison of two numbers.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace plexus {

class Expressions {
 public:
  /// The value of memory that was never written.
  static constexpr uint32_t kUndefined = UINT32_MAX;
  /// Upper bound of `nranks * blocks`.
  static constexpr uint64_t kContributionsMax = uint64_t{1} << 30;

  /// Contributions are (rank, block) with 0 <= rank < nranks, 0 <= block < blocks. `commutes`: the
  /// order of two operands makes no difference, only which ones are combined first.
  Expressions(int nranks, int blocks, bool commutes = false);

  [[nodiscard]] uint32_t contribution(int rank, int block) const;
  /// `first` combined with `second`, in this order.
  [[nodiscard]] uint32_t combine(uint32_t first, uint32_t second);
  /// The result of the final operation of a reduction on `value`.
  [[nodiscard]] uint32_t complete(uint32_t value);
  [[nodiscard]] bool is_complete(uint32_t value) const;

  /// The block of which `value` contains every rank's contribution exactly once and nothing else;
  /// -1: there is none.
  [[nodiscard]] int find_whole_block(uint32_t value);
  /// The contents of `value`, for error messages: what it has and what it lacks.
  [[nodiscard]] std::string describe(uint32_t value);

 private:
  static constexpr int kNotLooked = -2;
  struct Node {
    uint32_t first;
    uint32_t second;  // kUndefined: `first` after complete()
    uint32_t leaves;  // contributions, counted with multiplicity; saturates
    int whole_block;
  };

  [[nodiscard]] bool is_contribution(uint32_t value) const { return value < contributions_; }
  [[nodiscard]] uint32_t leaves_of(uint32_t value) const;
  uint32_t find_or_add(uint32_t first, uint32_t second, uint64_t leaves);
  [[nodiscard]] std::vector<uint32_t> list_contributions(uint32_t value) const;

  uint32_t nranks_;
  uint32_t blocks_;
  bool commutes_;
  uint32_t contributions_;                        // values below it are contributions
  std::vector<Node> nodes_;                       // value - contributions_
  std::unordered_map<uint64_t, uint32_t> known_;  // (first, second) -> value
};

}  // namespace plexus
