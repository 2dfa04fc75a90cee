// SPDX-License-Identifier: Apache-2.0
#include "integrations/cudart/driver_support.h"

#include "integrations/cudart/call.hpp"
#include "integrations/cudart/devices.hpp"
#include "integrations/cudart/runtime.hpp"

using namespace plexus::cudart;  // NOLINT(google-build-using-namespace): as all of this file

PLEXUS_CUDART int plexusCudartFindMemory(const void* address, void** base, size_t* bytes) {
  const auto found = Runtime::instance().memory.find(address);
  if (!found.has_value()) {
    return 0;
  }
  *base = found->data;
  *bytes = found->size_bytes;
  return 1;
}

PLEXUS_CUDART void plexusCudartUuid(cudaUUID_t* uuid, int device) { *uuid = uuid_of(device); }

PLEXUS_CUDART void plexusCudartRefuse(const char* name) {
  const CallName named(name);
  static_cast<void>(
      refuse_with(cudaErrorNotSupported, "this function is not there over host memory"));
}
