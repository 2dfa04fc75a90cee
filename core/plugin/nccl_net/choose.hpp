// SPDX-License-Identifier: Apache-2.0
// The choice among a library's `ncclNetPlugin_vN`: the highest supported version or the one that
// the user asks for; and which of the two v11 ABIs it is, from the size of its symbol.
#pragma once

#include <memory>
#include <string>

#include "core/base/result.hpp"
#include "core/plugin/library.hpp"
#include "core/plugin/nccl_net/net.hpp"

namespace plexus::nccl_net {

inline constexpr int kVersionLeast = 6;
inline constexpr int kVersionMost = 12;

/// PLEXUS_NET_V11: the layout of ncclNetPlugin_v11.
enum class V11Layout { kBySize, kMainline, kCrossDc };

struct Choice {
  std::unique_ptr<const Net> net;
  std::string entry;  // "ncclNetPlugin_v8", for messages
};

/// `version` 0: the highest. An Error when there is none, or when the symbol is smaller than its
/// ABI requires. Calls no function of the library.
[[nodiscard]] Result<Choice> choose_net(const Library& library, int version, V11Layout layout);

}  // namespace plexus::nccl_net
