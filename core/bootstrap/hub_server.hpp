// SPDX-License-Identifier: Apache-2.0
// The hub on TCP: one listening port and one thread in the process that made the unique id. It
// serves until all members have left, or until the time for joining is over; when the last rank of
// its process has left, it moves to another member's process. Connections of strangers (port scans,
// garbage, half-open connections, a wrong secret) are dropped without effect on the job.
#pragma once

#include <chrono>
#include <string_view>

#include "core/base/result.hpp"
#include "core/bootstrap/handover.hpp"
#include "core/bootstrap/unique_id.hpp"
#include "core/os/host.hpp"
#include "core/os/socket.hpp"

namespace plexus {

struct HubServerOptions {
  std::chrono::seconds join_time{300};  // for all ranks to join, counted from the first one
  std::chrono::seconds handshake_time{10};
  HandOverTimes hand_over = {};
  uint64_t host_process = process_id();  // ranks of this process share the hub's fate
  bool stays = false;  // serve until all ranks have joined, even if those that joined have left:
                       // late ones get an error
};

/// Serves `id` at `listener` in a thread of its own, which ends by itself.
Result<void> start_hub_server(const UniqueId& id, Socket listener, const HubServerOptions& options);

/// Serves a hub that moves here: `state` is its state, and its members will connect.
Result<void> start_heir_server(const UniqueId& id,
                               Socket listener,
                               std::string_view state,
                               const HubServerOptions& options);

}  // namespace plexus
