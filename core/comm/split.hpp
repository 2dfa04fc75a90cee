// SPDX-License-Identifier: Apache-2.0
// Children of a communicator: split by color, shrink by exclusion. The control plane of the parent
// carries that of the child; there is no new bootstrap.
//
//   Communicator* half = nullptr;
//   PLEXUS_TRY(split(parent, rank % 2, rank, &half, nullptr));  // even and odd ranks
//   return ok();
#pragma once

#include <span>

#include "core/base/result.hpp"
#include "core/setup/comm_config.hpp"

namespace plexus {

class Communicator;

/// ncclCommSplit. `config` nullptr: the parent's. `color` -1: takes part, `*child` = nullptr.
Result<void> split(
    Communicator& parent, int color, int key, Communicator** child, const CommConfig* config);

/// ncclCommShrink. `excluded`: sorted, unique parent ranks, not the caller's. `abort_parent`:
/// NCCL_SHRINK_ABORT.
Result<void> shrink(Communicator& parent,
                    std::span<const int> excluded,
                    Communicator** child,
                    const CommConfig* config,
                    bool abort_parent);

}  // namespace plexus
