// SPDX-License-Identifier: Apache-2.0
// The wrapped plugin: found beside this library or at a path, never unloaded, its table checked.
#pragma once

#include <string>

#include "plugin-api/plexus_net.h"

#include "plugins/net-chaos/script.hpp"

namespace plexus::net_chaos {

/// The table of the plugin `name` ("" is "socket"), valid for ever because the library is never
/// unloaded. The Error is one sentence.
[[nodiscard]] Result<const plexus_net_ops_t*> load_inner(const std::string& name);

}  // namespace plexus::net_chaos
