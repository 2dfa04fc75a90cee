// SPDX-License-Identifier: Apache-2.0
// The programs of a simulation and the connections between them. Of all ranks, or of one rank per
// class: ranks are of one class when they run the same steps with bytes of the same sizes over the
// same kinds of links, and their peers, connection by connection, are of the same classes. By
// induction over events such ranks do everything at the same times to the last bit, so that one of
// them stands for all; its messages to and from the others are those to and from their
// representatives. That holds as long as times depend on nothing but a rank's own state and what
// arrives: links whose bandwidth strangers share (a fabric) need all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tools/sim/model.hpp"

namespace plexus {

struct SimLane {
  const Lane* steps = nullptr;
  int channel = 0;
  // [step][peers of the step, receives first] number of the connection
  std::vector<uint32_t> connections;
  std::vector<uint32_t> first;  // [steps + 1] index in `connections`
};

struct SimRank {
  int rank = 0;
  std::vector<SimLane> lanes;         // of all channels
  std::vector<uint32_t> first_lanes;  // by channel
};

struct SimConnection {
  uint32_t source = 0;  // place in SimNetwork::ranks
  uint32_t target = 0;
  uint32_t source_place = 0;  // among the rank's connections, in the order of its steps
  uint32_t target_place = 0;
  uint32_t send_lane = 0;  // of the source
  uint32_t recv_lane = 0;  // of the target
  SimLinkKind kind = SimLinkKind::kFar;
};

struct SimNetwork {
  SimJob job;
  std::vector<SimRank> ranks;
  std::vector<SimConnection> connections;
  std::vector<Geometry> geometries;  // by channel
  int nranks = 0;                    // that it stands for
  /// By rank: the place in `ranks` of the one that stands for it; empty: all are there.
  std::vector<uint32_t> class_of;
  std::vector<std::unique_ptr<Program>> programs;  // borrowed by `ranks`
};

/// All ranks.
Result<SimNetwork> make_network(const SimJob& job);
/// One rank per class. Where all ranks together have more steps than `steps_recorded`, it is tried
/// first whether programs are the same all around the ring, node after node, and 16 ranks are
/// looked at for that.
Result<SimNetwork> make_symmetric_network(const SimJob& job,
                                          size_t steps_recorded = size_t{1} << 26);

/// Payload that one call sends over each connection, of a network with all ranks.
std::vector<uint64_t> count_sent_bytes(const SimNetwork& network);

}  // namespace plexus
