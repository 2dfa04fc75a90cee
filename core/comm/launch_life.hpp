// SPDX-License-Identifier: Apache-2.0
// How a new communicator comes to life, for all ways of making one: in the calling thread, in a
// thread of its own (non-blocking), or at the end of the caller's group.
#pragma once

#include <functional>

#include "core/comm/group.hpp"

namespace plexus {

/// Makes a communicator with `make` and stores it in `*slot`: at once and kInProgress when
/// config.blocking is false, else when it is ready (nullptr on failure).
Result<void> start_life(Communicator** slot,
                        const CommConfig& config,
                        std::function<Result<void>(Communicator&)> make);

/// Runs `job` now, or at the end of the calling thread's group.
Result<void> run_life_job(LifeJob job);

}  // namespace plexus
