// SPDX-License-Identifier: Apache-2.0
// Network interfaces as devices. Which exist and which the user selects:
// plugins/support/socket_interface.hpp.
#pragma once

#include "plugin-api/plexus_net.h"

#include "plugins/net-socket/settings.hpp"

namespace plexus::net_socket {

using plugin::Address;
using plugin::choose_nics;
using plugin::find_nics;
using plugin::Nic;

/// Reads /sys/class/net. Properties that cannot be read are unknown.
void read_properties(const Nic& nic, plexus_net_properties_t& properties);

}  // namespace plexus::net_socket
