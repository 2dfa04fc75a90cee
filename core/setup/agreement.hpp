// SPDX-License-Identifier: Apache-2.0
// What all ranks of a communicator must have alike, compared when it is made: later, a difference
// would show as calls that do not fit together.
#pragma once

#include <span>

#include "core/base/result.hpp"
#include "core/transport/peer_info.hpp"

namespace plexus {

/// kInvalidUsage names the setting, its values and who has them; the same sentence on all ranks.
/// Pure.
Result<void> check_agreement(std::span<const PeerInfo> infos);

}  // namespace plexus
