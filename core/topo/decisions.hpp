// SPDX-License-Identifier: Apache-2.0
// How two ranks, or a rank and a NIC, may talk: decided from their path, the options and what the
// machine was found to allow. All need the paths of the system.
#pragma once

#include "core/topo/options.hpp"
#include "core/topo/system.hpp"

namespace plexus {

/// Peer access, judged by distance. `from` and `to` are ordinals of ranks.
bool p2p_allowed(const System& system, const TopoOptions& options, int from, int to);
bool shm_allowed(const System& system, const TopoOptions& options, int from, int to);
/// Both ranks have a NIC beside them that carries more than the path between them.
bool network_is_better(const System& system, const TopoOptions& options, int from, int to);
/// Whether peer access or shared memory connects them and the network is not the better way.
bool connected_inside(const System& system, const TopoOptions& options, int from, int to);

enum class GdrUse : uint8_t { kOff, kOn, kPciMode };
/// `sending`: the NIC reads the GPU's memory.
GdrUse gdr_use(const System& system, const TopoOptions& options, int rank, int net, bool sending);

/// Readers instead of writers on peer access: faster on GPUs with compute capability 8.0.
bool p2p_reads(const System& system, int from, int to);

}  // namespace plexus
