// SPDX-License-Identifier: Apache-2.0
// Converts a device's properties to plexus_net_properties_t: numbers that by convention mean
// "unknown" become unknown, limits are clamped to what both sides support, and values that make a
// device unusable are errors. Pure.
#pragma once

#include "plugin-api/plexus_net.h"

#include "core/base/result.hpp"
#include "core/plugin/nccl_net/net.hpp"

namespace plexus::nccl_net {

/// Longest message for any plugin, because test() reports sizes as int.
inline constexpr uint64_t kMessageBytesMax = INT32_MAX;

[[nodiscard]] Result<plexus_net_properties_t> convert_properties(const ForeignProperties& foreign,
                                                                 int device,
                                                                 uint32_t requests_max);

}  // namespace plexus::nccl_net
