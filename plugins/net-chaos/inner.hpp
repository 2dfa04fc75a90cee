// SPDX-License-Identifier: Apache-2.0
// The wrapped plugin: found beside this library or at a path, loaded for good, its table checked.
#pragma once

#include <string>

#include "plugin-api/plexus_net.h"

#include "plugins/net-chaos/script.hpp"

namespace plexus::net_chaos {

/// The table of the plugin `name`, static storage of a library that stays loaded. Fails in one
/// sentence. "" is "socket".
[[nodiscard]] Result<const plexus_net_ops_t*> load_inner(const std::string& name);

}  // namespace plexus::net_chaos
