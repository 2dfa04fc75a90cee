// SPDX-License-Identifier: Apache-2.0
// The steps that find out what a communicator is, the same whether its ranks come by a unique id,
// all in one call, or from a parent: what each says of itself, settings that must agree, networks,
// topology, networks that reduce.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "core/setup/comm_config.hpp"
#include "core/setup/comm_setup.hpp"

namespace plexus {

/// Of the ranks that `exchange` spans. Blocks; ends early when `*give_up` is set. A failure of this
/// rank's is announced to the others, who wait in the exchange. `started`: when the call began.
Result<CommSetup> set_up(const SetupContext& context,
                         const Config& config,
                         const CommConfig& comm_config,
                         std::unique_ptr<Exchange> exchange,
                         std::chrono::steady_clock::time_point started,
                         const std::atomic<bool>* give_up);

/// Of ranks that are all in this process, a device for each: no bootstrap, no threads.
Result<std::vector<CommSetup>> set_up_local(const SetupContext& context,
                                            const Config& config,
                                            std::span<const int> devices,
                                            std::chrono::steady_clock::time_point started);

}  // namespace plexus
