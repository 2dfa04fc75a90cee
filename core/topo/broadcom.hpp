// SPDX-License-Identifier: Apache-2.0
// Broadcom's PEX switches appear as two levels of PCIe switches, although each is one switch.
#pragma once

#include "core/topo/system.hpp"

namespace plexus {

/// Merges each lower-level switch into its upper one, which takes over the links.
void flatten_broadcom_switches(System& system);

}  // namespace plexus
