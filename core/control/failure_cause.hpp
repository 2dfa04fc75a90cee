// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace plexus {

/// Where the process of a rank is, and whether it still is.
struct ProcessPlace {
  std::string address = {};  // of its agent, without port; "": there is no other process
  int32_t pid = 0;
  bool is_dead = false;
  bool is_gone = false;  // it has died or left the job
};

/// Why a group failed; the `tag` of kFail to a rank.
enum class FailureCause : uint8_t {
  kFailed = 0,  // a rank of it failed
  kDeath = 1,   // a process died; what it had sent before still counts
};

/// What has failed for `known` need not hear of `cause`: only after a death it may fail once more,
/// when a rank misses a message.
constexpr bool is_final(FailureCause known, FailureCause cause) {
  return known == FailureCause::kFailed || cause == FailureCause::kDeath;
}

}  // namespace plexus
