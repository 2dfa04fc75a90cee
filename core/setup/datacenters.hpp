// SPDX-License-Identifier: Apache-2.0
// What this node says of the datacenter it stands in: by the fabric file, the ids of the network's
// devices, or NCCL_IB_HCA; and what its network answers about the ids of others.
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
  std::string host;                 // as the fabric file names it
};

/// PLEXUS_FABRIC_FILE; without one, a file that says nothing.
Result<FabricFile> read_fabric_file(const Config& config);
Result<Location> find_location(const DatacenterSource& source);
/// The own ids to all of `ids`.
Result<std::vector<FabricAnswer>> ask_network(const DatacenterSource& source,
                                              std::span<const uint64_t> own,
                                              std::span<const uint64_t> ids);

}  // namespace plexus
