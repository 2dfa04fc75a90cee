// SPDX-License-Identifier: Apache-2.0
// The table of algorithms: name, collective, cost formulas, and the function that records a rank's
// program. A new algorithm is a header in kernels/algorithms and a row in algorithms.cpp; the
// executor, the verifier and `plexus verify` then know it.
//
//   const Algorithm* const ring = find_algorithm("ring_all_reduce");
//   const std::array<int, 4> order = {0, 1, 2, 3};
//   const Program program = program_of(*ring, {.rank = 2, .ring = order});
//   return program.lanes.size();
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/layout/collective.hpp"
#include "kernels/layout/protocol.hpp"
#include "kernels/program/program.hpp"

namespace plexus {

/// The recording rank and its communicator. `ring`: [nranks] ranks in ring order, borrowed. `root`:
/// of a rooted collective, or the peer of a send/recv. `variant`: channel modulo
/// Algorithm::variants. `nodes`: positions in the ring at which the ranks of a host begin,
/// ascending from 0, borrowed; empty: one host. `datacenters`: [nranks] datacenter of each position
/// in the ring, from 0, borrowed; empty: one. `above`: [datacenters] the one above each in trees,
/// -1 at the root, borrowed; empty: the one before it. `heads`: ranks of each host that use a
/// network that reduces. `joins`: chunks that go to one peer together travel in one message; only
/// for an algorithm that has such a form, see Algorithm::joined. `sketches`: one step stands for
/// all of such a message (Step::chunks), which says when what moves, but not where.
struct RecordInput {
  int rank;
  std::span<const int> ring;
  int root = 0;
  int variant = 0;
  std::span<const int> nodes = {};
  std::span<const int> datacenters = {};
  std::span<const int> above = {};
  int heads = 1;
  bool joins = false;
  bool sketches = false;
};

/// The distribution of ranks over hosts, as far as costs depend on it.
struct RankPlacement {
  int nranks = 1;
  int nodes = 1;
  int ranks_per_node_max = 1;
  int heads = 1;  // see RecordInput
};

/// The cost of one loop of an algorithm. The verifier checks all fields.
struct Cost {
  int rounds = 0;             // messages on the longest dependency chain
  int chunks_moved = 0;       // largest number that one rank sends or receives
  int64_t chunks_in_all = 0;  // number that all ranks (and networks that reduce) send
  int chunks_reduced = 0;     // largest number that one rank combines with another
  int chunks = 0;             // chunk indices
};

/// That an algorithm can be recorded for; a job has fewer (core/control).
inline constexpr int kProgramRanksMax = 1 << 24;
/// Largest number of operands of a verb (one per peer, and the own one).
inline constexpr int kOperandsMax = 65;

/// The form of an algorithm in which the chunks that go to one peer together travel in one message,
/// copied: for calls whose messages fit a slot. As functions of nranks: Cost::rounds, and the
/// largest number of chunks in a message.
struct JoinedForm {
  int (*rounds)(int nranks) = nullptr;
  int (*chunks_of_message)(int nranks) = nullptr;
};

/// An algorithm that is not recorded when it is needed but was before, for certain ranks: from a
/// file. Its programs divide the buffer.
struct RecordedAlgorithm {
  std::vector<Program> programs;  // by rank
  // the same with a message for each chunk, where those of several do not fit a slot; empty: none
  std::vector<Program> apart = {};
  int message_chunks = 1;  // in the longest message of `programs`
  int root = 0;
  uint64_t bytes_min = 0;  // of a call's larger buffer
  uint64_t bytes_max = UINT64_MAX;
  std::optional<Protocol> protocol;  // the only one; nullopt: any
  uint64_t hash = 0;                 // of the programs and the limits
  Cost cost;
};

struct Algorithm {
  const char* name = nullptr;    // unique, as `plexus verify --algorithm` takes it
  const char* family = nullptr;  // the token of NCCL_ALGO
  Collective collective = Collective::kAllReduce;
  Program (*record)(const RecordInput& input) = nullptr;
  /// The fields of `Cost`; null if they depend on more than the number of ranks.
  int (*rounds)(int nranks) = nullptr;
  int (*chunks_moved)(int nranks) = nullptr;
  int64_t (*chunks_in_all)(int nranks) = nullptr;
  int (*chunks_reduced)(int nranks) = nullptr;
  int (*chunks)(int nranks) = nullptr;
  int nranks_max = kProgramRanksMax;
  /// Number of different programs by channel: channel c runs variant c % variants.
  int variants = 1;
  /// A reduction that combines in rank order for any chunking: the result's bits depend only on the
  /// inputs.
  bool in_rank_order = false;
  /// For several datacenters. The costs depend on them, so that the five functions are null and
  /// count_cost() counts them.
  bool for_datacenters = false;
  /// Not null: the network reduces between hosts (collnet_all_reduce.hpp). Replaces the five
  /// formulas.
  Cost (*network_cost)(const RankPlacement& placement) = nullptr;
  /// Not null: replaces `record` and the five formulas. Borrowed.
  const RecordedAlgorithm* recorded = nullptr;
  /// Lanes that its programs have at most in one datacenter. On a device each is a thread block.
  int lanes = 2;
  /// Without a form of messages of several chunks its functions are null.
  JoinedForm joined = {};
};

/// The program of `input.rank`. One from a file has its messages of several chunks, if they can
/// also go alone, only if `input` joins chunks.
Program program_of(const Algorithm& algorithm, const RecordInput& input);

/// The largest number of chunks in a message of the algorithm's form with such messages; 1: it has
/// no such form.
int chunks_of_message(const Algorithm& algorithm, int nranks);

Cost cost_of(const Algorithm& algorithm, const RankPlacement& placement, bool joins = false);

std::span<const Algorithm> algorithms();
/// The program of every collective on one rank, and of a message of a rank to itself.
const Algorithm& local_copy();
/// The algorithm with this name; nullptr: none.
const Algorithm* find_algorithm(std::string_view name);

}  // namespace plexus
