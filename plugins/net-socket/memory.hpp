// SPDX-License-Identifier: Apache-2.0
// Registration. TCP needs none, because the kernel accesses any memory of the process. Only memory
// that a system call cannot access is refused.
#pragma once

#include "plugin-api/plexus_net.h"

#include "plugins/net-socket/settings.hpp"

namespace plexus::net_socket {

[[nodiscard]] Result<void> check_region(const plexus_net_region_t& region);

}  // namespace plexus::net_socket
