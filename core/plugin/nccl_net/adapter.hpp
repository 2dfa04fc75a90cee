// SPDX-License-Identifier: Apache-2.0
// Makes a library of NCCL's net plugin ABI a `NetPlugin`: the native table (plexus_net.h) on top of
// a `Net`. It adds what the native table has and NCCL's has not: owned connections, pools of
// requests, a copy of the handle, error sentences.
//
// Called by NetPlugin::load when the library has no plexus_plugin_query.
#pragma once

#include <memory>

#include "core/base/result.hpp"
#include "core/plugin/library.hpp"
#include "core/plugin/nccl_net/choose.hpp"
#include "core/plugin/net_plugin.hpp"

namespace plexus::nccl_net {

/// The native table of all versions. `init` is null, because the plugin's NetOrigin, which knows
/// the library, makes contexts.
[[nodiscard]] plexus_net_ops_t make_ops();

[[nodiscard]] Result<std::shared_ptr<const NetPlugin>> adapt(const Library& library, Choice choice);

}  // namespace plexus::nccl_net
