// SPDX-License-Identifier: Apache-2.0
// Endpoints of shm that are closed while their peer in the same process is not. libfabric's shm
// shares one mapping among the endpoints of a process, and fi_close removes it while the peer still
// uses it. Both ends of such a connection are therefore closed together, when the second one is
// parked. A parked endpoint is never polled, so that it accesses none of the host's buffers.
//
// This is the plugin's only process-wide state, because the two ends may be in different contexts.
#pragma once

#include <cstdint>
#include <vector>

#include "plugins/net-ofi/endpoint.hpp"

namespace plexus::net_ofi {

/// `connection`: a number that is equal at both ends. Threads: any.
void park(uint32_t connection, std::vector<Endpoint> endpoints);

}  // namespace plexus::net_ofi
