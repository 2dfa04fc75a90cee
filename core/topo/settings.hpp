// SPDX-License-Identifier: Apache-2.0
// Reads the settings whose values are words of the topology (NCCL_P2P_LEVEL, NCCL_NET_GDR_LEVEL,
// NCCL_NETDEVS_POLICY and others) into TopoOptions.
#pragma once

#include "core/base/config.hpp"
#include "core/base/result.hpp"
#include "core/topo/options.hpp"

namespace plexus {

/// kInvalidUsage names the setting with the bad value.
Result<TopoOptions> read_topo_options(const Config& config);

}  // namespace plexus
