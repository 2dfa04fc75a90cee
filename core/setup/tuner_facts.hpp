// SPDX-License-Identifier: Apache-2.0
// What tuners are told about a communicator, and what follows from its ranks alone: the slot size
// and the numbers of channels. Equal on all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "plugin-api/plexus_tuner.h"

#include "core/peers/peer_info.hpp"
#include "core/setup/topology.hpp"
#include "core/tuning/copy_methods.hpp"

namespace plexus {

plexus_tuner_comm_t describe_to_tuner(std::span<const PeerInfo> infos,
                                      const CommTopology& topology,
                                      uint64_t group,
                                      uint32_t slot_bytes);

/// How much is left of the way between two datacenters, in permille, by their numbers, the lower
/// one first. Absent: all of it.
using LinkShares = std::map<std::pair<uint32_t, uint32_t>, uint32_t>;

/// What of `comm` follows from the links between datacenters.
void describe_xdc_links(const CommTopology& topology,
                        const LinkShares& shares,
                        plexus_tuner_comm_t& comm);

/// What was measured between the processes of a host; nothing of CUDA ranks.
void describe_measured_links(const HostCopyMethods& copy_methods, plexus_tuner_comm_t& comm);

/// The smallest size that a rank was given, or else the default for the kind of slots.
uint32_t choose_slot_bytes(std::span<const PeerInfo> infos);

/// Channels that share a long message over the network: likewise. They are at most as many as a
/// call may have (bounds_of_channels).
uint32_t choose_net_channels(std::span<const PeerInfo> infos);

/// Thread blocks that a call of any rank may have on its device, beside those of the device's other
/// ranks and one for sends and receives; 0: no rank is on a device.
uint32_t blocks_of_rank(std::span<const PeerInfo> infos);

/// Fewest and most channels that all ranks support, of programs with one lane.
std::pair<uint32_t, uint32_t> bounds_of_channels(std::span<const PeerInfo> infos);

}  // namespace plexus
