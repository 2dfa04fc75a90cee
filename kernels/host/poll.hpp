// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <immintrin.h>

namespace plexus {

/// Polls for what was not ready a moment ago, `polls` times with that one. Not inlined: this keeps
/// the path short when it is ready at once, and profiles distinguish waiting from work.
template <class IsReady>
[[gnu::noinline]] bool poll(IsReady is_ready, uint32_t polls) noexcept {
  for (; polls > 1; --polls) {
    _mm_pause();
    if (is_ready()) {
      return true;
    }
  }
  return false;
}

}  // namespace plexus
