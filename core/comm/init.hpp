// SPDX-License-Identifier: Apache-2.0
// Making communicators whose ranks meet by a unique id, or come from a parent: the control plane,
// then core/setup, then the communicator.
#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "core/comm/communicator.hpp"

namespace plexus {

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
