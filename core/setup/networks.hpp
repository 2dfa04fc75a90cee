// SPDX-License-Identifier: Apache-2.0
// The step of init in which ranks open their networks and agree on those that they have in common,
// with one network (the default) or with all (NCCL_ALLNET_ENABLE=1).
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "core/setup/comm_config.hpp"
#include "core/setup/comm_setup.hpp"

namespace plexus {

/// Opens the networks of one rank according to its settings; none when it needs none. Does not
/// communicate.
Result<std::unique_ptr<NetSet>> open_networks(const SetupContext& context,
                                              const CommSetup& setup,
                                              const CommConfig& config);

/// Fills in `setup.nets`: opens networks and exchanges with the other ranks. Stays null when no
/// rank needs a network. Collective.
Result<void> agree_on_networks(const SetupContext& context,
                               CommSetup& setup,
                               const CommConfig& config,
                               const std::atomic<bool>* give_up);

/// The same for all ranks of a communicator that is made in one call.
Result<void> agree_on_networks(const SetupContext& context,
                               std::span<CommSetup> setups,
                               const CommConfig& config);

/// `slot_bytes`, or as much of it as all ranks' network devices carry in one message, header
/// included. The same on all ranks, after agree_on_networks. An Error when that is nearly nothing.
Result<uint32_t> fit_slots(const CommSetup& setup, uint32_t slot_bytes);

}  // namespace plexus
