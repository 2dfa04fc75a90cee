// SPDX-License-Identifier: Apache-2.0
// A library of NCCL's net plugin ABI as a `NetPlugin`: the native table (plexus_net.h) over a
// `Net`. What the native table expects and NCCL's does not have is made here: owned connections,
// pools of requests, the handle's copy, error sentences.
//
// Called by NetPlugin::load when the library has no plexus_plugin_query.
#pragma once

#include <memory>

#include "core/base/result.hpp"
#include "core/plugin/library.hpp"
#include "core/plugin/nccl_net/choose.hpp"
#include "core/plugin/net_plugin.hpp"

namespace plexus::nccl_net {

[[nodiscard]] Result<std::shared_ptr<const NetPlugin>> adapt(const Library& library, Choice choice);

}  // namespace plexus::nccl_net
