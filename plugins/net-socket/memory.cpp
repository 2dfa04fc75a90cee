// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-socket/memory.hpp"

namespace plexus::net_socket {

Result<void> check_region(const plexus_net_region_t& region) {
  if (region.kind != PLEXUS_MEMORY_HOST) {
    return fail(
        PLEXUS_INVALID_USAGE,
        "net-socket supports host memory only, not kind {}; stage GPU memory through the host",
        region.kind);
  }
  if (region.data == nullptr && region.size_bytes > 0) {
    return fail(PLEXUS_INVALID_ARGUMENT, "cannot register a region of {} bytes at a null address",
                region.size_bytes);
  }
  return ok();
}

}  // namespace plexus::net_socket
