// SPDX-License-Identifier: Apache-2.0
// The table of algorithms: name, collective, cost formulas, and how to record the program of a
// rank. A new algorithm is a header in kernels/algorithms and a row in algorithms.cpp; the
// executor, the verifier and `plexus verify` then know it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/layout/collective.hpp"
#include "kernels/program/program.hpp"

namespace plexus {

/// Who records: `ring` = [nranks] ranks in ring order, borrowed; `root` of a rooted collective or
/// the peer of a send/recv; `variant` = channel modulo Algorithm::variants; `nodes` = the places in
/// the ring where the ranks of a host begin, rising from 0, borrowed. Empty: all on one host;
/// `datacenters` = [nranks] the datacenter of each place in the ring, from 0, borrowed. Empty: one;
/// `heads` = ranks of each host that talk to a network that reduces.
struct RecordInput {
  int rank;
  std::span<const int> ring;
  int root = 0;
  int variant = 0;
  std::span<const int> nodes = {};
  std::span<const int> datacenters = {};
  int heads = 1;
};

/// How the ranks are spread over hosts, as far as costs depend on it.
struct Spread {
  int nranks = 1;
  int nodes = 1;
  int ranks_per_node_max = 1;
  int heads = 1;  // see RecordInput
};

/// What a loop of an algorithm costs. All of it is checked by the verifier.
struct Cost {
  int rounds = 0;             // messages on the longest chain of dependent ones
  int chunks_moved = 0;       // the most that one rank sends, or receives
  int64_t chunks_in_all = 0;  // that all ranks (and networks that reduce) send
  int chunks_reduced = 0;     // the most that one rank combines with another
  int chunks = 0;             // chunk indices
};

inline constexpr int kRanksMax = 1 << 24;
/// A verb combines at most so many operands (one per peer, and the own).
inline constexpr int kOperandsMax = 65;

struct Algorithm {
  const char* name = nullptr;    // unique, as `plexus verify --algorithm` takes it
  const char* family = nullptr;  // the token of NCCL_ALGO
  Collective collective = Collective::kAllReduce;
  Program (*record)(const RecordInput& input) = nullptr;
  /// The fields of `Cost`; null where they do not depend on the number of ranks alone.
  int (*rounds)(int nranks) = nullptr;
  int (*chunks_moved)(int nranks) = nullptr;
  int64_t (*chunks_in_all)(int nranks) = nullptr;
  int (*chunks_reduced)(int nranks) = nullptr;
  int (*chunks)(int nranks) = nullptr;
  int nranks_max = kRanksMax;
  /// Programs that differ by channel: channel c runs variant c % variants.
  int variants = 1;
  /// A reduction that combines in rank order, whatever the chunks: the bits of its result depend on
  /// the inputs alone.
  bool in_rank_order = false;
  /// Made for several datacenters. What it costs depends on these, so the five functions are null:
  /// count_cost() counts it.
  bool for_datacenters = false;
  /// Not null: the network reduces between hosts (collnet_all_reduce.hpp); in place of the five
  /// formulas.
  Cost (*network_cost)(const Spread& spread) = nullptr;
};

Cost cost_of(const Algorithm& algorithm, const Spread& spread);

std::span<const Algorithm> algorithms();
/// What every collective of one rank is, and a message to oneself.
const Algorithm& local_copy();
/// The algorithm of that name; nullptr: none.
const Algorithm* find_algorithm(std::string_view name);

}  // namespace plexus
