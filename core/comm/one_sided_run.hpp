// SPDX-License-Identifier: Apache-2.0
// How one-sided operations run: those of a communicator one after the other, in the order in which
// they were issued, as work that the engine polls beside everything else.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/base/result.hpp"
#include "core/comm/communicator.hpp"
#include "core/comm/one_sided.hpp"

namespace plexus {

class HostStream;

/// One rank's task, checked. `stream` nullptr: complete on return.
struct OneSidedTask {
  Communicator* comm = nullptr;
  HostStream* stream = nullptr;
  OneSidedCall call;
};

/// Runs a call, or adds it to the calling thread's group.
Result<void> enqueue_one_sided(OneSidedTask task);
/// Runs those of one group. Communicators go side by side; a put of one ends the wait of another.
/// What was wrong with one of them is the group's error, and the others of its communicator after
/// it are not made.
Result<void> run_one_sided(std::span<const OneSidedTask> tasks);

}  // namespace plexus
