// SPDX-License-Identifier: Apache-2.0
#include "kernels/program/symbolic_memory.hpp"

#include <algorithm>

#include <fmt/core.h>

namespace plexus {
namespace {

const char* buffer_name(Buffer buffer) {
  return buffer == Buffer::kInput ? "input" : buffer == Buffer::kOutput ? "output" : "scratch";
}

}  // namespace

SymbolicMemory::SymbolicMemory(const CollectiveDefinition& definition,
                               const LaneNetwork& network,
                               const HappensBefore& order,
                               const Expressions& expressions)
    : definition_(definition),
      network_(network),
      order_(order),
      expressions_(expressions),
      taken_(network.connections().size()) {
  cells_.resize(static_cast<size_t>(definition.nranks) * static_cast<size_t>(definition.cells()));
  for (int rank = 0; rank < definition.nranks; ++rank) {
    lanes_max_ = std::max<size_t>(lanes_max_, network.lane_count(rank));
    const int blocks = definition.blocks(Buffer::kInput);
    for (int block = 0; block < blocks && definition.has_input(rank); ++block) {
      cells_[index(rank, Buffer::kInput, block)].value = expressions.contribution(rank, block);
    }
  }
  reads_.resize(cells_.size() * lanes_max_);
  if (definition.scratch_chunks > 0) {
    scratch_by_.resize(cells_.size());
  }
}

std::string SymbolicMemory::read(StepEvent now, Buffer buffer, int chunk, uint32_t* value) {
  const int rank = lane(now).rank;
  const size_t at = index(rank, buffer, chunk);
  Cell& cell = cells_[at];
  std::string problem = check_value(rank, buffer, chunk, cell);
  if (problem.empty() && buffer == Buffer::kScratch && !definition_.shares_scratch) {
    problem = check_scratch(now, at);
  }
  if (problem.empty() && !order_.is_before(cell.written, now.lane)) {
    problem = fmt::format("reads {} chunk {}, which lane {} writes unordered with it",
                          buffer_name(buffer), chunk, network_.lanes()[cell.written.lane].lane);
  }
  reads_[at * lanes_max_ + static_cast<size_t>(lane(now).lane)] = now.number;
  cell.is_unread = false;
  *value = cell.value;
  return problem;
}

std::string SymbolicMemory::check_value(int rank,
                                        Buffer buffer,
                                        int chunk,
                                        const Cell& cell) const {
  if (buffer != Buffer::kInput) {
    return has_output(cell) ? std::string()
                            : fmt::format("reads {} chunk {}, which was never written",
                                          buffer_name(buffer), chunk);
  }
  // A reduction scales what it reads as input, so that must still be the caller's data.
  const int block = definition_.is_one_block(Buffer::kInput) ? 0 : chunk;
  const bool is_callers = cell.value == expressions_.contribution(rank, block) &&
                          (cell.written.number == 0 || !is_reduction(definition_.collective));
  return is_callers ? std::string()
                    : fmt::format("reads input chunk {} after the output was written there", chunk);
}

/// The next loop uses the same scratch memory, and `after` does not order different loops: only the
/// order within a lane does.
std::string SymbolicMemory::check_scratch(StepEvent now, size_t cell) {
  uint32_t& owner = scratch_by_[cell];
  if (owner != 0 && owner != 1 + now.lane) {
    return fmt::format("shares a chunk of scratch with lane {}, which may be one loop ahead",
                       network_.lanes()[owner - 1].lane);
  }
  owner = 1 + now.lane;
  return {};
}

/// `is_before`: whether an access happens before the write.
template <class IsBefore>
std::string SymbolicMemory::check_order(int rank,
                                        Buffer buffer,
                                        int chunk,
                                        const IsBefore& is_before) const {
  const size_t at = index(rank, buffer, chunk);
  const Cell& cell = cells_[at];
  if (!is_before(cell.written)) {
    return fmt::format("writes {} chunk {}, which lane {} also writes unordered with it",
                       buffer_name(buffer), chunk, network_.lanes()[cell.written.lane].lane);
  }
  const uint32_t first = network_.first_lane(rank);
  for (uint32_t other = 0; other < network_.lane_count(rank); ++other) {
    if (!is_before({first + other, reads_[at * lanes_max_ + other]})) {
      return fmt::format("writes {} chunk {}, which lane {} reads unordered with it",
                         buffer_name(buffer), chunk, other);
    }
  }
  for (uint32_t loan = cell.loans; loan != kNoLoan; loan = loans_[loan].next) {
    const uint32_t connection = loans_[loan].connection;
    const auto& taken = taken_[connection];
    const auto& ends = network_.connections()[connection];
    if (loans_[loan].number >= taken.size() ||
        !is_before({ends.recv_lane, taken[loans_[loan].number]})) {
      return fmt::format("overwrites {} chunk {}, which rank {} may still read in place",
                         buffer_name(buffer), chunk, ends.target);
    }
  }
  return {};
}

std::string SymbolicMemory::check_delivery(int rank,
                                           int chunk,
                                           StepEvent sent,
                                           const HappensBefore::Clock& known) const {
  const std::string problem = check_order(rank, Buffer::kOutput, chunk, [&](StepEvent access) {
    return HappensBefore::is_before(access, sent, known);
  });
  return problem.empty() ? problem : "its sender, which may store the result there, " + problem;
}

std::string SymbolicMemory::write(StepEvent now, Buffer buffer, int chunk, uint32_t value) {
  const int rank = lane(now).rank;
  const size_t at = index(rank, buffer, chunk);
  Cell& cell = cells_[at];
  std::string problem = check_order(
      rank, buffer, chunk, [&](StepEvent access) { return order_.is_before(access, now.lane); });
  if (problem.empty() && buffer == Buffer::kScratch && !definition_.shares_scratch) {
    problem = check_scratch(now, at);
  }
  const bool may_waste = definition_.divides_buffer;  // from a file: it only has to be right
  if (problem.empty() && !may_waste && cell.written.number > 0 && cell.value == value) {
    problem = fmt::format("stores in {} chunk {} the value that it already holds",
                          buffer_name(buffer), chunk);
  }
  if (problem.empty() && !may_waste && cell.is_unread) {
    problem = fmt::format("overwrites {} chunk {}, whose value was stored and never read",
                          buffer_name(buffer), chunk);
  }
  std::fill_n(reads_.begin() + static_cast<std::ptrdiff_t>(at * lanes_max_), lanes_max_, 0U);
  cell = {.value = value, .written = now, .is_unread = true};
  return problem;
}

std::string SymbolicMemory::pass_address(
    StepEvent now, Buffer buffer, int chunk, uint32_t connection, uint32_t number) {
  if (buffer == Buffer::kScratch) {
    return "passes the address of a chunk of scratch, which the next loop overwrites";
  }
  Cell& cell = cells_[index(lane(now).rank, buffer, chunk)];
  loans_.push_back({connection, number, cell.loans});
  cell.loans = static_cast<uint32_t>(loans_.size() - 1);
  return {};
}

int SymbolicMemory::find_unread_scratch(int rank) const {
  for (int chunk = 0; chunk < definition_.scratch_chunks && !definition_.divides_buffer; ++chunk) {
    if (cells_[index(rank, Buffer::kScratch, chunk)].is_unread) {
      return chunk;
    }
  }
  return -1;
}

uint32_t SymbolicMemory::output(int rank, int chunk) const {
  const Cell& cell = cells_[index(rank, Buffer::kOutput, chunk)];
  return has_output(cell) ? cell.value : Expressions::kUndefined;
}

}  // namespace plexus
