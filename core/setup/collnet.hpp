// SPDX-License-Identifier: Apache-2.0
// The step of init in which ranks agree on a network that reduces (NCCL_COLLNET_ENABLE): whether
// all have one, what it can reduce, and how many ranks of each host use it.
#pragma once

#include <atomic>
#include <memory>

#include "core/plugin/collnet_plugin.hpp"
#include "core/setup/comm_config.hpp"
#include "core/tuning/candidate.hpp"

namespace plexus {

struct CommSetup;
struct SetupContext;

struct CollnetOpen {
  CollnetAbility ability{.missing = "NCCL_COLLNET_ENABLE is not 1"};
  std::unique_ptr<CollnetContext> context;  // nullptr: none
};

/// Whether the rank asks for it. The environment wins over the communicator's settings, as in NCCL.
bool wants_collnet(int64_t setting, const CommConfig& config);

/// Collective, unless no rank asks for it or all ranks are in one process.
Result<CollnetOpen> agree_on_collnet(const SetupContext& context,
                                     const CommSetup& setup,
                                     const std::atomic<bool>* give_up);

}  // namespace plexus
