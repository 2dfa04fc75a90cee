// SPDX-License-Identifier: Apache-2.0
// Making communicators: the named steps of init, the same whether the ranks come by a unique id,
// all in one call, or from a parent.
#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "core/comm/communicator.hpp"

namespace plexus {

/// What this process says of a rank of its own.
Result<PeerInfo> describe_self(const Config& config, const CommConfig& comm_config);
/// Notes in `info` on which device it computes (kHostDevice: the host).
Result<void> describe_device(int device, PeerInfo& info);

/// Joins the others over the unique ids and makes `comm` ready. Blocks; ends early with
/// comm.give_up.
Result<void> init_by_id(Communicator& comm, int nranks, std::span<const UniqueId> ids, int rank);

/// Makes `child` ready from its end of the control plane (of the ranks that `exchange` spans).
/// `started`: when the call began, for the log.
Result<void> init_by_exchange(Communicator& child,
                              const Config& config,
                              std::unique_ptr<Exchange> exchange,
                              std::chrono::steady_clock::time_point started);

}  // namespace plexus
