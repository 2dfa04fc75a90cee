// SPDX-License-Identifier: Apache-2.0
// Calls of CUDA ranks: all plans that a group has for one device become one launch, in which all
// blocks are resident together, on the user's stream. The async engine then moves the pumps of
// their connections and sees how the launch ends.
#pragma once

#include <span>

#include "core/schedule/plan.hpp"

namespace plexus {

class CallRunner;

/// One communicator's part of a group.
struct DeviceCalls {
  CallRunner* runner;
  Plan* plan;  // prepared
  std::span<const Task> tasks;
};

/// Connects what is not connected yet, launches, returns. A failure fails all communicators.
Result<void> run_on_devices(std::span<const DeviceCalls> calls,
                            std::span<Execution* const> on_host);

}  // namespace plexus
