// SPDX-License-Identifier: Apache-2.0
// Calls across the ABI in both directions: an exception becomes an error code.
#pragma once

#include <cstdint>

#include "plugin-api/plexus_plugin.h"

namespace plexus {

template <class Call>
int32_t guarded(const Call& call) noexcept {
  try {
    return call();
  } catch (...) {
    return PLEXUS_INTERNAL_ERROR;
  }
}

}  // namespace plexus
