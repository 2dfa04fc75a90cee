// SPDX-License-Identifier: Apache-2.0
// What a simulation needs to know: the call, how it is done, and what messages cost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/tuning/channel_order.hpp"
#include "core/tuning/partition.hpp"
#include "kernels/layout/geometry.hpp"
#include "kernels/layout/protocol.hpp"
#include "kernels/program/algorithms.hpp"
#include "tools/fabric/fabric.hpp"
#include "tools/sim/work.hpp"

namespace plexus {

/// A message of b bytes takes latency_us + b * us_per_byte from its sending to its arrival; its
/// sender and its receiver are busy for message_us each, and for what `work` says.
struct SimLink {
  double latency_us = 0;  // > 0
  double us_per_byte = 0;
  double message_us = 0;
  SimWork work = {};
};

enum class SimLinkKind : uint8_t { kNear, kFar, kWide };
inline constexpr int kSimLinkKinds = 3;

struct SimCosts {
  // Between ranks of one node, of different nodes, and of different datacenters. With a fabric, its
  // links add latency to the latter two, and share bandwidth.
  SimLink near;
  SimLink far;
  SimLink wide;
  double reduce_us_per_byte = 0;  // of each pair of operands
  double copy_us_per_byte = 0;    // of a local copy
};

/// Each rank sends so many elements to the one `distance` further, and receives as many from the
/// one as much before.
struct SimExchange {
  int distance = 1;
  bool wraps = false;  // the last ranks send to the first; else to nobody
  uint64_t count = 0;
};

struct SimJob {
  const Algorithm* algorithm = nullptr;
  // A group of sends and receives, one of these by each channel, in place of an algorithm.
  std::vector<SimExchange> exchanges = {};
  int nranks = 2;
  int ranks_per_node = 1;
  uint64_t count = 0;  // as in Task
  uint32_t element_bytes = 4;
  int root = 0;
  int channels = 1;
  uint32_t slot_bytes = 1 << 19;
  Protocol protocol = Protocol::kSimple;
  std::vector<int> datacenters;  // by rank, in blocks; empty: one
  // by datacenter: the one above it in trees, -1 at the root; empty: the one before it
  std::vector<int> above = {};
  // by channel, modulo their number; empty: rings follow the numbers of ranks
  std::vector<ChannelOrder> orders = {};
  SimCosts costs;
  int calls = 1;  // one after the other, each begun by a rank when it has done its part of the last
  // Cores of a node, which its ranks share: each rank is one thread, on core number local rank
  // modulo cores. 0: all lanes run at the same time, as blocks of a GPU.
  int cores = 0;
  // Not 0: who follows whom on a core, and when, is drawn with this seed, and unless `are_bound`
  // also which ranks of a node share one.
  uint32_t shuffle = 0;
  bool are_bound = false;
  double call_us = 0;        // of its rank, at the end of a call
  double turn_us = 0;        // when a core goes from one rank to the next
  bool exact_spans = false;  // chunks have the bytes that they have, and empty ones are skipped
  uint64_t node_bytes = 0;   // of the buffers and slots of a node, for SimWork
  bool is_one_way = false;   // ranks send more than they receive, or less: for SimWork

  [[nodiscard]] SimLinkKind kind_of(int rank, int peer) const {
    const auto a = static_cast<size_t>(rank);
    const auto b = static_cast<size_t>(peer);
    return rank / ranks_per_node == peer / ranks_per_node             ? SimLinkKind::kNear
           : !datacenters.empty() && datacenters[a] != datacenters[b] ? SimLinkKind::kWide
                                                                      : SimLinkKind::kFar;
  }
  /// Whether a node has fewer cores than ranks.
  [[nodiscard]] bool shares_cores() const {
    return cores > 0 && cores < std::min(ranks_per_node, nranks);
  }
  [[nodiscard]] const SimLink& link(SimLinkKind kind) const {
    return kind == SimLinkKind::kNear  ? costs.near
           : kind == SimLinkKind::kFar ? costs.far
                                       : costs.wide;
  }
};

/// Bytes on the wire per byte of payload.
constexpr double wire_factor(Protocol protocol) {
  constexpr double kLL = 2;  // 4 bytes of data in 8
  constexpr double kLL128 = 128.0 / kDataBytesOfLineLL128;
  return protocol == Protocol::kLL ? kLL : protocol == Protocol::kLL128 ? kLL128 : 1;
}

/// Bytes of the first chunk in `loop`. All chunks of a loop count as equally long; in the last one
/// that is up to a chunk more than the library sends.
uint64_t chunk_bytes(const Geometry& geometry, uint32_t loop, uint32_t element_bytes);
/// Bytes that `step` moves in `loop`: those of its own chunk, as in the executor.
uint64_t step_bytes(const Geometry& geometry,
                    const Step& step,
                    uint32_t loop,
                    uint32_t element_bytes);

/// What `rank` does of an exchange.
Program program_of(const SimExchange& exchange, int rank, int nranks);

/// How the chunks of the job's algorithm become messages, as in the library.
MessageForm message_form_of(const SimJob& job);

/// The elements of `job` that `channel` moves, as the library divides them.
Geometry geometry_of(const SimJob& job, const Program& program, int channel);

}  // namespace plexus
