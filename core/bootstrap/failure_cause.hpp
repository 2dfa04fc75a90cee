// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace plexus {

/// Why a group failed; the `tag` of kFail to a rank.
enum class FailureCause : uint8_t {
  kFailed = 0,  // a rank of it failed
  kDeath = 1,   // a process died; what it had sent before still counts
};

}  // namespace plexus
