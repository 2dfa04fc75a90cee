// SPDX-License-Identifier: Apache-2.0
// Channels in NCCL's file format (<graphs>, NCCL_GRAPH_FILE and NCCL_GRAPH_DUMP_FILE). Device
// numbers are hexadecimal there; a GPU's rank has priority over its device number.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.hpp"
#include "core/topo/search.hpp"

namespace plexus {

/// Parses channels for the ranks and NICs of `system`; every channel must contain each rank once. A
/// graph without channels is left to the search.
Result<GivenChannels> parse_graphs(std::string_view text,
                                   const System& system,
                                   const TopoOptions& options);
std::string format_graphs(const NodeChannels& channels, const System& system);

}  // namespace plexus
