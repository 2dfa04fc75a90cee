// SPDX-License-Identifier: Apache-2.0
// Proofs about programs. The lanes of all ranks form a Kahn network with bounded channels: data
// flow and deadlock do not depend on the interleaving, so that one execution on symbolic values
// proves all executions. Memory hazards, which do depend on it, are proved absent with vector
// clocks.
//
// Proved: every output chunk holds exactly the contributions that the collective's definition
// names; no deadlock with the given number of slots; on each connection as many chunks are sent as
// received, of equal lengths; no undefined value is read; no two lanes access a chunk in conflict
// without order; no chunk that may be sent by address is overwritten before its receiver has taken
// it; all ranks of an all-reduce combine in the same order; values are complete where the program
// says so. README.md has the argument.
//
//   const VerifyResult result =
//       verify({.algorithm = find_algorithm("ring_all_reduce"), .nranks = 8, .in_place = true});
//   return result.proved ? "proved" : result.reason;
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/layout/fifo.hpp"
#include "kernels/program/algorithms.hpp"

namespace plexus {

struct VerifyInput {
  const Algorithm* algorithm = nullptr;
  int nranks = 1;
  int root = 0;
  bool in_place = false;  // ignored for a collective without an in-place form
  uint64_t slots = kSlots;
  int variant = 0;                        // the algorithm's
  std::span<const int> datacenters = {};  // as in RecordInput; the ring contains the ranks in order
  // For an algorithm that reduces in the network: ranks of each host (the last one may have fewer),
  // and heads, at most the ranks of the last host.
  int ranks_per_node = 8;
  int heads = 1;
  bool joins = false;  // as in RecordInput
};

struct VerifyResult {
  bool proved = false;
  std::string reason;         // empty when proved, else one sentence
  bool same_order = true;     // all ranks of an all-reduce combine in one order, so that bits agree
  size_t steps = 0;           // number of steps of all ranks
  int lanes = 0;              // largest number of lanes of a rank
  int rounds = 0;             // messages on the longest dependency chain
  int chunks = 0;             // chunk indices of a loop
  int chunks_moved = 0;       // largest number that a rank sends or receives
  int64_t chunks_in_all = 0;  // that all ranks send
  int chunks_reduced = 0;     // largest number that a rank combines with another
  uint64_t slots_needed = 0;  // fewest slots with which the programs end
};

/// Records all ranks' programs, proves them, and checks their costs against the table. A send is
/// proved together with its receive, from rank 0 to rank 1, for any `nranks` above 1.
VerifyResult verify(const VerifyInput& input);

/// Proves programs from elsewhere, without the table's cost. Of those that divide the buffer, which
/// may come from anybody, it is not asked that they waste nothing, nor that ranks combine in one
/// order (see VerifyResult::same_order), and a + b counts as b + a. `programs`: one per rank, by
/// rank; for kSend and kRecv, those of sender and receiver. `networks`: number of peers beyond the
/// ranks that are networks that reduce. An all-to-all is proved in place as plans run it, see
/// in_place.hpp.
VerifyResult verify_programs(std::span<const Program> programs,
                             Collective collective,
                             int root,
                             bool in_place,
                             uint64_t slots,
                             int networks = 0);

/// Whether the collective can be called in place.
bool has_in_place(Collective collective);

}  // namespace plexus
