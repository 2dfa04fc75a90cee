// SPDX-License-Identifier: Apache-2.0
// What all ways of making a communicator share (init.hpp, split.hpp): in the calling thread, in a
// thread of its own (non-blocking), or at the end of the caller's group.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "core/comm/communicator.hpp"
#include "core/comm/group.hpp"

namespace plexus {

/// Makes a communicator with `make` and stores it in `*slot`: at once and kInProgress when
/// config.blocking is false, else when it is ready (nullptr on failure).
Result<void> start_communicator(Process& process,
                                Communicator** slot,
                                const CommConfig& config,
                                std::function<Result<void>(Communicator&)> make);

/// Makes `made` ready from its end of the control plane (of the ranks that `exchange` spans).
/// `started`: when the user's call began, for the log. Ends early when `*give_up` is set.
Result<void> start_with_exchange(Communicator& made,
                                 const Config& config,
                                 std::unique_ptr<Exchange> exchange,
                                 std::chrono::steady_clock::time_point started,
                                 const std::atomic<bool>* give_up);

/// Set by the ncclCommAbort that ends the making of `made`: its own, or, while its maker waits for
/// it and has no handle, that of `parent`.
inline const std::atomic<bool>* give_up_of(const Communicator& made, const Communicator& parent) {
  return made.comm_config().blocking ? &parent.give_up : &made.give_up;
}

/// PLEXUS_CHECK_NAN. Before calls are possible.
void open_input_check(const CommSetup& setup, Communicator& comm);

/// The calling thread makes the communicator.
void note_maker(Process& process, CommConfig* config);

/// Runs `job` now, or at the end of the calling thread's group.
Result<void> run_lifecycle_job(LifecycleJob job);

}  // namespace plexus
