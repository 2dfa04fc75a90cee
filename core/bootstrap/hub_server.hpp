// SPDX-License-Identifier: Apache-2.0
// The hub on TCP: one listening port and one thread in the process that made the unique id. Serves
// until all members have left, or until nobody came in time. Strangers (port scans, garbage,
// half-open connections, a wrong secret) are dropped without harm to the job.
#pragma once

#include <chrono>

#include "core/base/result.hpp"
#include "core/bootstrap/unique_id.hpp"
#include "core/os/socket.hpp"

namespace plexus {

struct HubServerOptions {
  std::chrono::seconds join_time{300};  // for all ranks to come, from the first one on
  std::chrono::seconds handshake_time{10};
  bool stays = false;  // until all came, though who came has left: late ones are told of a failure
};

/// Serves `id` at `listener` in a thread of its own, which ends by itself.
Result<void> start_hub_server(const UniqueId& id, Socket listener, const HubServerOptions& options);

}  // namespace plexus
