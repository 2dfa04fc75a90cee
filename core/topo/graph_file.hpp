// SPDX-License-Identifier: Apache-2.0
// Channels as NCCL writes them to a file and takes them from one (<graphs>, NCCL_GRAPH_FILE and
// NCCL_GRAPH_DUMP_FILE). Device numbers are hexadecimal there; a GPU's rank wins over its device.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.hpp"
#include "core/topo/search.hpp"

namespace plexus {

/// For the ranks and NICs of `system`; every channel must have each rank once. A graph without
/// channels is to be searched for.
Result<GivenChannels> parse_graphs(std::string_view text,
                                   const System& system,
                                   const TopoOptions& options);
std::string format_graphs(const NodeChannels& channels, const System& system);

}  // namespace plexus
