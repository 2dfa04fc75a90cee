// SPDX-License-Identifier: Apache-2.0
// Limits of what may remain after use. The caller has used the plugin once before, for what a
// process keeps once.
#pragma once

#include <functional>

#include "tools/conformance/check.hpp"

namespace plexus::conformance {

/// Bytes currently allocated by malloc, without the monitor's log lines, which are forgotten.
[[nodiscard]] uint64_t count_heap_bytes(Fixture& fixture);

struct Repeated {
  std::function<Result<void>(int times)> use;
  int times;
  const char* what;     // "contexts", for messages
  uint64_t bytes_each;  // average heap bytes that may remain per use
};
[[nodiscard]] Result<void> leaves_no_memory(Fixture& fixture, const Repeated& repeated);

/// Checks that many contexts leave neither memory, descriptors nor threads. `use` logs through
/// `fixture`.
[[nodiscard]] Result<void> contexts_leave_nothing(
    Fixture& fixture, const std::function<Result<void>(int times)>& use);

}  // namespace plexus::conformance
