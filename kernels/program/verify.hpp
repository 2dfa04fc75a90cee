// SPDX-License-Identifier: Apache-2.0
// Proofs about programs. The lanes of all ranks form a Kahn network with bounded channels: what
// flows, and whether it deadlocks, does not depend on the interleaving, so one execution on
// symbolic values proves all executions. What order cannot show, memory hazards, is proved with
// vector clocks.
//
// Proved: every output chunk holds exactly the contributions that the collective's definition
// names; no deadlock with the given number of slots; as many chunks sent as received on each
// connection, of the same length; no undefined value is read; no two lanes touch a chunk unordered;
// no chunk that may travel as an address is overwritten before its receiver took it; all ranks of
// an all-reduce combine in the same order; values are complete where the program says so. README.md
// has the argument.
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
  bool in_place = false;  // of no effect on a collective that has no in-place form
  uint64_t slots = kSlots;
  int variant = 0;  // of the algorithm
  std::span<const int> datacenters =
      {};  // as RecordInput has them; ranks stand in order in the ring
  // Of an algorithm that reduces in the network: hosts of so many ranks each, but for a last one of
  // fewer, and of so many heads, at most the ranks of the last host.
  int ranks_per_node = 8;
  int heads = 1;
};

struct VerifyResult {
  bool proved = false;
  std::string reason;         // empty when proved, else one sentence
  size_t steps = 0;           // of all ranks
  int lanes = 0;              // most of a rank
  int rounds = 0;             // messages on the longest chain of dependent ones
  int chunks = 0;             // chunk indices of a loop
  int chunks_moved = 0;       // most that a rank sends, or receives
  int64_t chunks_in_all = 0;  // that all ranks send
  int chunks_reduced = 0;     // most that a rank combines with another
  uint64_t slots_needed = 0;  // fewest slots with which it still ends
};

/// Records all ranks' programs and proves them, and that they cost what the table says. A send is
/// proved together with its receive, rank 0 to rank 1, whatever `nranks` above 1.
VerifyResult verify(const VerifyInput& input);

/// The same for programs from elsewhere, without the table's cost. `programs`: one per rank, by
/// rank; of kSend and kRecv, those of sender and receiver. `networks`: how many peers beyond the
/// ranks are networks that reduce.
VerifyResult verify_programs(std::span<const Program> programs,
                             Collective collective,
                             int root,
                             bool in_place,
                             uint64_t slots,
                             int networks = 0);

/// Can the collective be called in place?
bool has_in_place(Collective collective);

}  // namespace plexus
