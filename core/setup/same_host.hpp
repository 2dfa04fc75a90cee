// SPDX-License-Identifier: Apache-2.0
// The step of init that finds out what processes of one host can do with each other's memory, by
// trying: whether they may read it by system calls (PLEXUS_ATTACH), and how fast the host is.
#pragma once

#include <atomic>

#include "core/base/result.hpp"
#include "core/setup/comm_setup.hpp"

namespace plexus {

/// Fills in `setup.copy_methods`, and notes in `setup.infos` which ranks cannot share memory with
/// others. Collective, unless no two ranks share memory between processes.
Result<void> agree_on_same_host(const SetupContext& context,
                                CommSetup& setup,
                                const std::atomic<bool>* give_up);

}  // namespace plexus
