// SPDX-License-Identifier: Apache-2.0
// Broadcom's PEX switches show themselves as two levels of PCIe switches; inside there is one.
#pragma once

#include "core/topo/system.hpp"

namespace plexus {

/// Merges the lower level's switches into the upper one's, which takes over their links.
void flatten_broadcom_switches(System& system);

}  // namespace plexus
