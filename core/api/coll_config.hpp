// SPDX-License-Identifier: Apache-2.0
// ncclCollConfig_t, the settings of one call: checked, and as values that do not refer to the
// caller's memory. Vendors' options (ncclConfigExt_t) are read here too: ours are in plexus.h.
#pragma once

#include <cstdint>
#include <string>

#include "core/api/public.hpp"
#include "core/base/result.hpp"
#include "core/schedule/task.hpp"

namespace plexus {

struct CollConfig {
  std::string selection;  // algSelection; empty: any
  bool is_forced = true;
  int min_ctas = 0;  // 0: the communicator's
  int max_ctas = 0;
  uint64_t tag = 0;
  cudaEvent_t launch_event = nullptr;
  bool deterministic = false;
  bool checksum = false;
  uint32_t deadline_ms = 0;  // 0: none
  ChoiceCallback on_choice;
};

/// Reads no more than the struct's own size and follows at most kExtensionsMax extensions.
/// kInvalidArgument: it is not initialised, or has a value out of range.
Result<CollConfig> check_coll_config(const ncclCollConfig_t& config);
inline constexpr int kExtensionsMax = 1024;

/// Puts the settings into a call that is checked otherwise. kInvalidArgument: its selection leaves
/// nothing; kInvalidUsage: an event for a rank on the host.
Result<void> apply_coll_config(const CollConfig& config, Task& task);

}  // namespace plexus
