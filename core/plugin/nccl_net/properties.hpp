// SPDX-License-Identifier: Apache-2.0
// What a foreign device says of itself, as plexus_net_properties_t: numbers that mean "unknown" by
// habit become unknown, limits are clamped to what both sides can do, and what makes a device
// unusable is an error. Pure.
#pragma once

#include "plugin-api/plexus_net.h"

#include "core/base/result.hpp"
#include "core/plugin/nccl_net/net.hpp"

namespace plexus::nccl_net {

/// Longest message, whatever a plugin says: test() reports sizes as int.
inline constexpr uint64_t kMessageBytesMax = INT32_MAX;

[[nodiscard]] Result<plexus_net_properties_t> convert_properties(const ForeignProperties& foreign,
                                                                 int device,
                                                                 uint32_t requests_max);

}  // namespace plexus::nccl_net
