// SPDX-License-Identifier: Apache-2.0
// Minimum and maximum for everything that reduces on ranks, of host and device. The rule is the
// ABI's, because networks that reduce follow it, too; it is NCCL's, and that of C's fmin and fmax.
#pragma once

#include "plugin-api/plexus_collnet.h"

#include "kernels/layout/macros.hpp"

namespace plexus {

/// `T`: an integer or a native float.
template <bool is_maximum, class T>
PLEXUS_HOST_DEVICE constexpr T extremum(T a, T b) noexcept {
  return is_maximum ? PLEXUS_LARGER_OF(a, b) : PLEXUS_SMALLER_OF(a, b);
}

}  // namespace plexus
