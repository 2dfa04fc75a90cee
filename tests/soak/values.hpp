// SPDX-License-Identifier: Apache-2.0
// The reference: the contents of each buffer of a call before and after it, as segments of
// patterns. Reduced values are small integers (or halves of powers of two), exact in every type and
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/soak/program.hpp"

namespace plexus::soak {

size_t size_of(ncclDataType_t type);
bool is_integer(ncclDataType_t type);
/// Encodes `value`, which must be exact in the type.
void encode(ncclDataType_t type, double value, std::byte* to);

/// The factor of the rank's input in an operation with kPreMulSum.
double scalar_of(const Operation& operation, int rank);

/// `count` elements from element `at` of a buffer; their values are the pattern's elements from
/// `first` on.
struct Segment {
  size_t at = 0;
  size_t count = 0;
  size_t first = 0;
  int source = 0;  // rank; kReduced: the result
  int target = 0;
};
constexpr int kReduced = -1;

struct Counts {  // for plexusAllToAllV and plexusAllGatherV, by rank
  std::vector<size_t> counts{};
  std::vector<size_t> displacements{};
  size_t total = 0;  // elements of the buffer, gaps included
};
Counts send_counts(const Operation& operation, int rank, int nranks);
Counts recv_counts(const Operation& operation, int rank, int nranks);

/// A rank's buffers: sizes in elements, and what they hold.
struct Buffers {
  size_t send_count = 0;
  size_t recv_count = 0;
  std::vector<Segment> send{};
  std::vector<Segment> recv{};  // after the call
  size_t send_at = 0;           // in place: where the one begins in the other, in elements
  size_t recv_at = 0;
  bool can_be_in_place = false;
};
Buffers buffers_of(const Operation& operation, const Call& call, int nranks);

/// Writes the segments into a buffer of the operation's type. `salt`: the operation's number.
void write(const Operation& operation,
           const std::vector<Segment>& segments,
           uint64_t salt,
           int nranks,
           std::byte* buffer);

}  // namespace plexus::soak
