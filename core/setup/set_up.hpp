// SPDX-License-Identifier: Apache-2.0
// The steps of init, the same for ranks that join with a unique id, are made in one call, or come
// from a parent: rank descriptions, settings that must agree, networks, topology, networks that
// reduce.
//
//   const auto started = std::chrono::steady_clock::now();
//   PLEXUS_TRY(setup, set_up(context, config, CommConfig{}, std::move(exchange), started,
//   give_up)); return setup.nranks;
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "core/setup/comm_config.hpp"
#include "core/setup/comm_setup.hpp"

namespace plexus {

/// For the ranks of `exchange`. Blocks; returns early when `*give_up` is set. A failure of this
/// rank is announced to the others, which wait in the exchange. `started`: when the call began.
Result<CommSetup> set_up(const SetupContext& context,
                         const Config& config,
                         const CommConfig& comm_config,
                         std::unique_ptr<Exchange> exchange,
                         std::chrono::steady_clock::time_point started,
                         const std::atomic<bool>* give_up);

/// For ranks that are all in this process, one device each: no bootstrap, no threads.
Result<std::vector<CommSetup>> set_up_local(const SetupContext& context,
                                            const Config& config,
                                            std::span<const int> devices,
                                            std::chrono::steady_clock::time_point started);

}  // namespace plexus
