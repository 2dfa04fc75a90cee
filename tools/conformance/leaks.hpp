// SPDX-License-Identifier: Apache-2.0
// What use that is over may leave of memory, and of anything. The caller has used the plugin
// before, for what a process keeps once.
#pragma once

#include <functional>

#include "tools/conformance/check.hpp"

namespace plexus::conformance {

struct Repeated {
  std::function<Result<void>(int times)> use;
  int times;
  const char* what;     // "contexts", for messages
  uint64_t bytes_each;  // of heap that may be left, on average
};
[[nodiscard]] Result<void> leaves_no_memory(Stand& stand, const Repeated& repeated);

/// Nor descriptors, nor threads: many contexts. `use` logs through `stand`.
[[nodiscard]] Result<void> contexts_leave_nothing(
    Stand& stand, const std::function<Result<void>(int times)>& use);

}  // namespace plexus::conformance
