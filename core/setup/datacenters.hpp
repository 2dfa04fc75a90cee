// SPDX-License-Identifier: Apache-2.0
// This node's location, from the fabric file, the fabric ids of the network's devices, or
// NCCL_IB_HCA; and its network's answers about the ids of other nodes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/base/config.hpp"
#include "core/datacenter/datacenter_map.hpp"
#include "core/datacenter/fabric_file.hpp"
#include "core/plugin/net_plugin.hpp"

namespace plexus {

struct DatacenterSource {
  const Config* config = nullptr;
  const NetContext* net = nullptr;  // null: no rank needs a network
  std::string host;                 // the name to look for in the fabric file
};

/// Reads PLEXUS_FABRIC_FILE; an empty file when it is not set.
Result<FabricFile> read_fabric_file(const Config& config);
Result<Location> find_location(const DatacenterSource& source);
/// Asks the network about paths from its own ids to all of `ids`.
Result<std::vector<FabricAnswer>> ask_network(const DatacenterSource& source,
                                              std::span<const uint64_t> own,
                                              std::span<const uint64_t> ids);

}  // namespace plexus
