// SPDX-License-Identifier: Apache-2.0
// The ways to do a call, as values: what is known of the call, and what may be chosen for it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/schedule/loop_costs.hpp"
#include "kernels/layout/protocol.hpp"
#include "kernels/layout/types.hpp"
#include "kernels/program/algorithms.hpp"

namespace plexus {

/// A slot where NCCL_BUFFSIZE is not set: in memory it is to stay in a core's cache between writer
/// and reader, of a network it is to cost few system calls a byte (docs/performance.md).
inline constexpr uint32_t kSlotBytesOfMemory = 128 * 1024;
inline constexpr uint32_t kSlotBytesOfNetwork = 512 * 1024;

/// What a communicator's network can reduce (ncclCollNet); alike on all ranks.
struct CollnetAbility {
  std::string missing;  // why there is none, as half a sentence; empty: there is one
  int heads = 0;        // ranks of each host that talk to it
  std::array<uint8_t, kDataTypeCount> kinds{};  // per type, bit k: ReduceKind k
};

struct ChoiceInput {
  Collective collective = Collective::kAllReduce;
  uint64_t size_bytes = 0;  // of the larger buffer of a rank
  int nranks = 1;
  int channels_min = 1;
  int channels_max = 1;
  uint32_t slot_bytes = 0;
  uint32_t element_bytes = 4;
  uint32_t calls_in_group = 1;
  bool shares_memory = true;   // some ranks do, so that LL and LL128 are possible between those
  bool deterministic = false;  // reductions in rank order only
  int nodes = 1;               // hosts, or parts of hosts with a network in between
  int ranks_per_node_max = 1;
  DataType type = DataType::kFloat32;
  ReduceKind kind = ReduceKind::kSum;
  const CollnetAbility* collnet = nullptr;  // nullptr: none
  const LoopCosts* costs = nullptr;         // of the communicator; null: one of one datacenter
};

struct Choice {
  const Algorithm* algorithm;
  Protocol protocol;
  int channels;
  uint32_t chunk_bytes;  // most bytes of a chunk, at most a slot of the protocol
};

/// One way to do a call, and what speaks for or against it.
struct Candidate {
  Choice choice;
  bool possible;
  std::string reason;        // why it is not possible, else empty
  double predicted_us = -1;  // by the tuner; -1: it said nothing, or not to use it
};

/// What one loop of the algorithm costs with the ranks of the call.
LoopCost cost_of(const Choice& choice, const ChoiceInput& input);

}  // namespace plexus
