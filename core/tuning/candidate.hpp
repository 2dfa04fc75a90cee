// SPDX-License-Identifier: Apache-2.0
// The ways to do a call, as values: what is known of the call, and what may be chosen for it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "core/tuning/loop_costs.hpp"
#include "kernels/layout/protocol.hpp"
#include "kernels/layout/types.hpp"
#include "kernels/program/algorithms.hpp"

namespace plexus {

/// Slot sizes without NCCL_BUFFSIZE. A slot in memory should stay in a core's cache between writer
/// and reader; a slot of a network should need few system calls per byte (docs/performance.md);
/// what a block does beside moving bytes should be little for each slot (docs/gpu-results.md).
inline constexpr uint32_t kSlotBytesOfMemory = 128 * 1024;
inline constexpr uint32_t kSlotBytesOfDevices = 512 * 1024;
inline constexpr uint32_t kSlotBytesOfNetwork = 512 * 1024;

/// What a communicator's network can reduce (ncclCollNet); equal on all ranks.
struct CollnetAbility {
  std::string missing;  // why the network cannot reduce, as half a sentence; empty: it can
  int heads = 0;        // number of ranks of each host that use the network's reduction
  std::array<uint8_t, kDataTypeCount> kinds{};  // by data type: bit k is ReduceKind k
};

struct Choice {
  const Algorithm* algorithm;
  Protocol protocol;
  int channels;
  uint32_t chunk_bytes;  // largest chunk; at most the protocol's slot
};

/// Calls that were made for a tuner to learn their time.
struct Trial {
  Choice choice;
  uint32_t calls;
  int64_t time_ns;  // of one, agreed by all ranks; -1: unknown
};

struct ChoiceInput {
  Collective collective = Collective::kAllReduce;
  uint64_t size_bytes = 0;  // size of the rank's larger buffer
  int nranks = 1;
  int root = 0;  // of a rooted collective
  int channels_min = 1;
  int channels_max = 1;
  int blocks = 0;  // thread blocks that a call may have on the rank's device; 0: no limit
  uint32_t slot_bytes = 0;
  uint32_t element_bytes = 4;
  uint32_t calls_in_group = 1;
  bool in_windows = false;     // see CallShape
  bool shares_memory = true;   // some ranks do; LL and LL128 are possible only between those
  bool deterministic = false;  // reductions in rank order only
  uint64_t selection = 0;      // AlgorithmSelection of the call
  bool is_forced = false;      // see CallSettings
  bool has_blocks = false;     // with counts of their own, see CallShape
  // number of hosts, or of parts of hosts that only the network connects
  int nodes = 1;
  int ranks_per_node_max = 1;
  DataType type = DataType::kFloat32;
  ReduceKind kind = ReduceKind::kSum;
  const CollnetAbility* collnet = nullptr;   // nullptr: none
  const LoopCosts* costs = nullptr;          // the communicator's; null: a single datacenter
  std::span<const Algorithm> recorded = {};  // from files, beside the table
  std::span<const Trial> trials = {};        // of calls like this one, oldest first
};

/// A combination of algorithm and protocol, and what speaks for or against it.
struct Candidate {
  Choice choice;
  bool possible;
  std::string reason;        // why it is not possible; empty: it is
  double predicted_us = -1;  // the tuner's time; -1: it gave none, or advised against it
  uint32_t trial_calls = 0;  // that the tuner wants to see before it is asked again; 0: none
};

/// Most channels that a call may have with the algorithm.
int channels_max_of(const Algorithm& algorithm, const ChoiceInput& input);

/// What one loop of the algorithm costs with the ranks of the call.
LoopCost cost_of(const Choice& choice, const ChoiceInput& input);

}  // namespace plexus
