// SPDX-License-Identifier: Apache-2.0
// The channels of a communicator, and NCCL's times over them, as one JSON object, for scripts.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/topo/cluster.hpp"
#include "tools/cli/topo/nccl_model.hpp"

namespace plexus {

std::string format_cluster_json(const ClusterChannels& cluster, double search_ms);
/// {"rows": [{"collective", "bytes", "algorithm", "protocol", "time_us": {"ring/LL": ...}}]}
std::string format_nccl_times_json(const NcclModel& model, const std::vector<size_t>& sizes);

}  // namespace plexus
