// SPDX-License-Identifier: Apache-2.0
// The settings whose values are words of the topology: NCCL_P2P_LEVEL, NCCL_NET_GDR_LEVEL,
// NCCL_NETDEVS_POLICY and their neighbours, as TopoOptions.
#pragma once

#include "core/base/config.hpp"
#include "core/base/result.hpp"
#include "core/topo/options.hpp"

namespace plexus {

/// kInvalidUsage names the setting that is not understood.
Result<TopoOptions> read_topo_options(const Config& config);

}  // namespace plexus
