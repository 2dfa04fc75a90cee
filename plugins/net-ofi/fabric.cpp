// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/fabric.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <sys/resource.h>

#include "plugins/support/descriptors.hpp"

namespace plexus::net_ofi {
namespace {

/// More than an endpoint takes: eight over tcp;ofi_rxm of 1.17.
constexpr size_t kEndpointDescriptors = 16;

/// libfabric says EIO where it gets some of an endpoint's descriptors, and gives those back.
bool are_descriptors_short() {
  rlimit limit{};
  std::error_code error;
  const std::filesystem::directory_iterator open("/proc/self/fd", error);
  if (error) {
    return error == std::errc::too_many_files_open;
  }
  const auto count = static_cast<size_t>(std::distance(begin(open), end(open)));
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && count + kEndpointDescriptors > limit.rlim_cur;
}

std::string reason_text(int error) {
  if (error == EIO && are_descriptors_short()) {
    error = EMFILE;
  }
  const bool is_refusal = error == EMFILE || error == ENFILE;
  return is_refusal ? plugin::refused_descriptor_text(error) : error_text(error);
}

}  // namespace

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
                reason_text(static_cast<int>(-result)));
  }
  return ok();
}

std::string library_text() {
  const uint32_t version = library().version();
  return fmt::format("libfabric {}.{}", FI_MAJOR(version), FI_MINOR(version));
}

}  // namespace plexus::net_ofi
