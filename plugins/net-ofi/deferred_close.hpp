// SPDX-License-Identifier: Apache-2.0
// Endpoints of shm that are closed while their peer in the same process is not. libfabric's shm
// shares one mapping among the endpoints of a process, and fi_close removes it while the peer still
// uses it. Both ends of such a connection are therefore closed together, when the second one is
// given up. Until then the first is never polled, so that it accesses none of the host's buffers.
//
// A listener's endpoint has such peers too, the connectors that greet it. They keep it open until
// they have an answer, or give up.
//
// This is the plugin's only process-wide state, because the two ends may be in different contexts.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "plugins/net-ofi/endpoint.hpp"

namespace plexus::net_ofi {

/// A listener's endpoint.
struct ListenEnd {
  Endpoint endpoint;
  AddressBytes address;
  std::atomic<bool> has_ended{false};  // nobody listens at it any more
};

/// Makes a listener's endpoint known to the connectors of this process. Threads: any.
[[nodiscard]] Result<std::shared_ptr<ListenEnd>> share_listen_end(Endpoint endpoint);
/// The one with this address; nullptr: it is not in this process. One that is being closed is an
/// error. Threads: any.
[[nodiscard]] Result<std::shared_ptr<ListenEnd>> find_listen_end(const AddressBytes& address);

/// `connection`: a number that is equal at both ends. `greeted`: a listener of this process that
/// has not answered; if it has ended and knows of no such connection, no other end will come.
/// Threads: any.
void close_with_peer(uint32_t connection,
                     std::vector<Endpoint> endpoints,
                     const std::shared_ptr<ListenEnd>& greeted);

}  // namespace plexus::net_ofi
