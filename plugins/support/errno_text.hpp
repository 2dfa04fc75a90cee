// SPDX-License-Identifier: Apache-2.0
// The system's words for an errno, safe in any thread (strerror is not).
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

namespace plexus::plugin {

[[nodiscard]] inline std::string errno_text(int error = errno) {
  return std::generic_category().message(error);
}

}  // namespace plexus::plugin
