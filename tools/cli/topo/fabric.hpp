// SPDX-License-Identifier: Apache-2.0
// Text output for fabrics: a summary, a route, and the bandwidth of a traffic pattern.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.hpp"
#include "tools/fabric/fabric.hpp"

namespace plexus {

/// "NODE" or "NODE:RAIL" of `fabric`.
Result<FabricPort> parse_port(std::string_view text, const Fabric& fabric);

/// The datacenters and their sizes.
std::string format_fabric(const Fabric& fabric);
/// The vertices of the route, with the latency and the bandwidth of a single flow.
std::string format_route(const Fabric& fabric, FabricPort from, FabricPort to);
/// The pattern in which every NIC sends to the NIC of its rail `shift` nodes on, at the same time.
std::string format_shift(const Fabric& fabric, int shift);

}  // namespace plexus
