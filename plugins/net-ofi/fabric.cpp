// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/fabric.hpp"

#include <algorithm>
#include <iterator>

namespace plexus::net_ofi {

std::string error_text(ssize_t error) {
  return library().strerror(static_cast<int>(error < 0 ? -error : error));
}

bool is_peer_gone(ssize_t error) noexcept {
  constexpr ssize_t kGone[] = {FI_ECONNREFUSED, FI_ECONNRESET,  FI_ECONNABORTED, FI_ETIMEDOUT,
                               FI_EHOSTUNREACH, FI_ENETUNREACH, FI_ENOTCONN,     FI_ESHUTDOWN,
                               FI_EHOSTDOWN,    FI_EREMOTEIO,   FI_EIO,          EPIPE};
  const ssize_t positive = error < 0 ? -error : error;
  return std::find(std::begin(kGone), std::end(kGone), positive) != std::end(kGone);
}

Result<void> check_call(ssize_t result, const char* what, const std::string& where) {
  if (result < 0) {
    return fail(PLEXUS_SYSTEM_ERROR, "libfabric cannot {} on {}: {}", what, where,
                error_text(result));
  }
  return ok();
}

std::string library_text() {
  const uint32_t version = library().version();
  return fmt::format("libfabric {}.{}", FI_MAJOR(version), FI_MINOR(version));
}

}  // namespace plexus::net_ofi
