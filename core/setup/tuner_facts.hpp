// SPDX-License-Identifier: Apache-2.0
// What tuners are told of a communicator, and what follows from its ranks alone: the size of slots
// and how many channels all can have. The same on all ranks.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "plugin-api/plexus_tuner.h"

#include "core/setup/topology.hpp"
#include "core/transport/peer_info.hpp"

namespace plexus {

plexus_tuner_comm_t describe_to_tuner(std::span<const PeerInfo> infos,
                                      const CommTopology& topology,
                                      uint64_t group,
                                      uint32_t slot_bytes);

/// The least that a rank was told, or else by what the slots are for.
uint32_t choose_slot_bytes(std::span<const PeerInfo> infos);

/// Fewest and most channels that all ranks can have.
std::pair<uint32_t, uint32_t> bounds_of_channels(std::span<const PeerInfo> infos);

}  // namespace plexus
