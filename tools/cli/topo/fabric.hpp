// SPDX-License-Identifier: Apache-2.0
// A fabric for people: what it has, a route, and what a pattern of traffic gets.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.hpp"
#include "tools/fabric/fabric.hpp"

namespace plexus {

/// "NODE" or "NODE:RAIL" of `fabric`.
Result<FabricPort> parse_port(std::string_view text, const Fabric& fabric);

/// Datacenters and sizes.
std::string format_fabric(const Fabric& fabric);
/// Vertex by vertex, with latency and what one flow gets alone.
std::string format_route(const Fabric& fabric, FabricPort from, FabricPort to);
/// Every NIC sends to the one of its rail `shift` nodes on, all at once.
std::string format_shift(const Fabric& fabric, int shift);

}  // namespace plexus
