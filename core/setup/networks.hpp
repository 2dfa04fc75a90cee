// SPDX-License-Identifier: Apache-2.0
// The step of init in which ranks open their networks and agree on what they have in common. With
// one network (the default) and with all (NCCL_ALLNET_ENABLE=1) alike.
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "core/setup/comm_config.hpp"
#include "core/setup/comm_setup.hpp"

namespace plexus {

/// Opens the networks of one rank, as its settings say; no network when it needs none. Nothing is
/// agreed yet.
Result<std::unique_ptr<NetSet>> open_networks(const SetupContext& context,
                                              const CommSetup& setup,
                                              const CommConfig& config);

/// Fills in `setup.nets`: opens, and exchanges with the other ranks. Stays null when no rank needs
/// a network. Collective.
Result<void> agree_on_networks(const SetupContext& context,
                               CommSetup& setup,
                               const CommConfig& config,
                               const std::atomic<bool>* give_up);

/// The same for all ranks of a communicator that is made in one call.
Result<void> agree_on_networks(const SetupContext& context,
                               std::span<CommSetup> setups,
                               const CommConfig& config);

}  // namespace plexus
