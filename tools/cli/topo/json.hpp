// SPDX-License-Identifier: Apache-2.0
// The channels of a communicator as one JSON object, for scripts.
#pragma once

#include <string>

#include "core/topo/cluster.hpp"

namespace plexus {

std::string format_cluster_json(const ClusterChannels& cluster, double search_ms);

}  // namespace plexus
