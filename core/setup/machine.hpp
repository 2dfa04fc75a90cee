// SPDX-License-Identifier: Apache-2.0
// This host's topology description with given ranks and the NICs of one network: detected, or from
// NCCL_TOPO_FILE. Used by the topology search and by the GPUDirect decision.
#pragma once

#include <vector>

#include "core/base/config.hpp"
#include "core/base/result.hpp"
#include "core/plugin/net_plugin.hpp"
#include "core/setup/topology.hpp"
#include "core/topo/detect.hpp"

namespace plexus {

struct HostSource {
  const Config* config = nullptr;
  const NetContext* net = nullptr;  // null: no NICs of a plugin
  TopologyCache* cache = nullptr;
};

/// For messages about what NCCL_TOPO_FILE describes; empty: it is not set.
[[nodiscard]] std::string describe_topo_file(const Config& config);

[[nodiscard]] Result<XmlElement> describe_host(const std::vector<HostRank>& ranks,
                                               const HostSource& source);

}  // namespace plexus
