// SPDX-License-Identifier: Apache-2.0
// A call across the ABI, either way: an exception that escapes is a code like any other.
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
