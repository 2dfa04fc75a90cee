// SPDX-License-Identifier: Apache-2.0
// Endpoints of shm that are closed while their peer in the same process is not. libfabric's shm
// shares one mapping among the endpoints of a process, which fi_close removes under the peer's
// feet; so both ends of such a connection are closed together, by the one that comes last. A parked
// endpoint is never polled: nothing of it touches the host's buffers.
//
// The one state of the process that the plugin has, because the ends may be in two contexts.
#pragma once

#include <cstdint>
#include <vector>

#include "plugins/net-ofi/endpoint.hpp"

namespace plexus::net_ofi {

/// `connection`: the same number at both ends. Threads: any.
void park(uint32_t connection, std::vector<Endpoint> endpoints);

}  // namespace plexus::net_ofi
