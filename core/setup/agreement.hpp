// SPDX-License-Identifier: Apache-2.0
// Settings that must be equal on all ranks of a communicator, compared when it is made: later, a
// difference would appear as mismatched calls.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "core/base/config.hpp"
#include "core/base/result.hpp"
#include "core/control/gathered.hpp"
#include "core/peers/peer_info.hpp"

namespace plexus {

/// kInvalidUsage names the setting, its values and the ranks that have them; the same sentence on
/// all ranks. Of texts the ranks compare hashes: only when these differ, which all ranks see alike,
/// `gather` brings the texts. `config`: this rank's.
Result<void> check_agreement(std::span<const PeerInfo> infos,
                             const Config& config,
                             const std::function<Result<Gathered>(const std::string&)>& gather);

}  // namespace plexus
