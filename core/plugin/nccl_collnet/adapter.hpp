// SPDX-License-Identifier: Apache-2.0
// A library of NCCL's collnet ABI (ncclCollNetPlugin_v6 .. v12) as a `CollnetPlugin`: the native
// table (plexus_collnet.h) over the library's. NCCL's connect blocks until all members are there;
// here it runs in a thread of its own, so that the engine that drives the rank goes on.
#pragma once

#include <memory>

#include "core/base/result.hpp"
#include "core/plugin/collnet_plugin.hpp"
#include "core/plugin/library.hpp"

namespace plexus::nccl_collnet {

inline constexpr int kVersionLeast = 6;
inline constexpr int kVersionMost = 12;

/// The newest version that the library has; null: none. Nothing of the library is called.
[[nodiscard]] Result<std::shared_ptr<const CollnetPlugin>> adapt(const Library& library);

}  // namespace plexus::nccl_collnet
