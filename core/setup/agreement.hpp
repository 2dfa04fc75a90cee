// SPDX-License-Identifier: Apache-2.0
// Settings that must be equal on all ranks of a communicator, compared when it is made: later, a
// difference would appear as mismatched calls.
#pragma once

#include <span>

#include "core/base/result.hpp"
#include "core/transport/peer_info.hpp"

namespace plexus {

/// kInvalidUsage names the setting, its values and the ranks that have them; the same sentence on
/// all ranks. Pure.
Result<void> check_agreement(std::span<const PeerInfo> infos);

}  // namespace plexus
