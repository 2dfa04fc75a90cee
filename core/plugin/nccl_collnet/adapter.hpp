// SPDX-License-Identifier: Apache-2.0
// Makes a library of NCCL's collnet ABI (ncclCollNetPlugin_v6 .. v12) a `CollnetPlugin`: the native
// table (plexus_collnet.h) on top of the library's. NCCL's connect blocks until all members are
// there; it runs in a thread of its own here, so that the engine that drives the rank continues.
#pragma once

#include <memory>

#include "core/base/result.hpp"
#include "core/plugin/collnet_plugin.hpp"
#include "core/plugin/library.hpp"

namespace plexus::nccl_collnet {

inline constexpr int kVersionLeast = 6;
inline constexpr int kVersionMost = 12;

/// The newest supported version in the library; null: none. Calls no function of the library.
[[nodiscard]] Result<std::shared_ptr<const CollnetPlugin>> adapt(const Library& library);

}  // namespace plexus::nccl_collnet
