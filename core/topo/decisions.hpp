// SPDX-License-Identifier: Apache-2.0
// How two ranks, or a rank and a NIC, may communicate: decided from their path, the options, and
// what was found to work on the machine. Every function requires computed paths.
#pragma once

#include "core/topo/options.hpp"
#include "core/topo/system.hpp"

namespace plexus {

/// Whether peer access is allowed at this distance. `from` and `to` are ordinals of ranks.
bool p2p_allowed(const System& system, const TopoOptions& options, int from, int to);
bool shm_allowed(const System& system, const TopoOptions& options, int from, int to);
/// Whether both ranks have a near NIC with more bandwidth than the path between the ranks.
bool network_is_better(const System& system, const TopoOptions& options, int from, int to);
/// Whether the ranks are connected by peer access or shared memory and the network is not better.
bool connected_inside(const System& system, const TopoOptions& options, int from, int to);

enum class GdrUse : uint8_t { kOff, kOn, kPciMode };
/// `sending`: the NIC reads from the GPU's memory; otherwise it writes to it.
GdrUse gdr_use(const System& system, const TopoOptions& options, int rank, int net, bool sending);

/// Whether receivers read instead of senders writing over peer access: faster on compute capability
/// 8.0.
bool p2p_reads(const System& system, int from, int to);

}  // namespace plexus
