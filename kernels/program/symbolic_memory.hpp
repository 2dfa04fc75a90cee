// SPDX-License-Identifier: Apache-2.0
// `SymbolicMemory`: the contents of all ranks' buffers in the verifier's execution, and which steps
// used them, to prove that two steps never conflict in a chunk in any interleaving. Every access
// returns what is wrong with it, as the second half of a sentence, or "".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/program/definition.hpp"
#include "kernels/program/expressions.hpp"
#include "kernels/program/happens_before.hpp"
#include "kernels/program/lane_network.hpp"

namespace plexus {

class SymbolicMemory {
 public:
  /// All arguments are borrowed and must outlive the memory.
  SymbolicMemory(const CollectiveDefinition& definition,
                 const LaneNetwork& network,
                 const HappensBefore& order,
                 const Expressions& expressions);

  /// Stores the chunk's value, as the step `now` reads it, in `value`.
  [[nodiscard]] std::string read(StepEvent now, Buffer buffer, int chunk, uint32_t* value);
  [[nodiscard]] std::string write(StepEvent now, Buffer buffer, int chunk, uint32_t value);
  /// Message `number` of a connection may carry the address of this chunk instead of its bytes.
  [[nodiscard]] std::string pass_address(
      StepEvent now, Buffer buffer, int chunk, uint32_t connection, uint32_t number);
  /// The step `sent`, which knew `known`, may have stored its value in this output chunk of `rank`.
  [[nodiscard]] std::string check_delivery(int rank,
                                           int chunk,
                                           StepEvent sent,
                                           const HappensBefore::Clock& known) const;
  /// `now` takes the next message of a connection, which frees the chunk that it borrows.
  void take(StepEvent now, uint32_t connection) { taken_[connection].push_back(now.number); }

  /// A chunk of scratch that was written and never read; -1: none.
  [[nodiscard]] int find_unread_scratch(int rank) const;
  /// The contents of an output chunk; kUndefined before it was written, unless it is there in
  /// place.
  [[nodiscard]] uint32_t output(int rank, int chunk) const;

 private:
  static constexpr uint32_t kNoLoan = UINT32_MAX;
  struct Cell {
    uint32_t value = Expressions::kUndefined;
    uint32_t loans = kNoLoan;  // head of a list
    StepEvent written;
    bool is_unread = false;  // written, and not read locally since
  };
  struct Loan {
    uint32_t connection;
    uint32_t number;
    uint32_t next;
  };

  [[nodiscard]] size_t index(int rank, Buffer buffer, int chunk) const {
    return static_cast<size_t>(rank) * static_cast<size_t>(definition_.cells()) +
           static_cast<size_t>(definition_.cell(rank, buffer, chunk));
  }
  [[nodiscard]] std::string check_value(int rank, Buffer buffer, int chunk, const Cell& cell) const;
  /// Whether the cell has been stored in, or has in place what belongs there.
  [[nodiscard]] bool has_output(const Cell& cell) const {
    return cell.written.number > 0 ||
           (definition_.divides_buffer && cell.value != Expressions::kUndefined &&
            !is_reduction(definition_.collective));
  }
  [[nodiscard]] std::string check_scratch(StepEvent now, size_t cell);
  template <class IsBefore>
  [[nodiscard]] std::string check_order(int rank,
                                        Buffer buffer,
                                        int chunk,
                                        const IsBefore& is_before) const;
  [[nodiscard]] const LaneNetwork::LaneState& lane(StepEvent now) const {
    return network_.lanes()[now.lane];
  }

  const CollectiveDefinition& definition_;
  const LaneNetwork& network_;
  const HappensBefore& order_;
  const Expressions& expressions_;
  size_t lanes_max_ = 1;         // largest number of lanes per rank
  std::vector<Cell> cells_;      // [nranks][CollectiveDefinition::cells()]
  std::vector<uint32_t> reads_;  // [cells][lanes_max] last step that read
  std::vector<uint32_t>
      scratch_by_;  // [cells] 1 + the lane that uses this scratch; empty: no scratch
  std::vector<Loan> loans_;
  std::vector<std::vector<uint32_t>> taken_;  // [connections][message] step of the receiving lane
};

}  // namespace plexus
