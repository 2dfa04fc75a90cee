// SPDX-License-Identifier: Apache-2.0
// The system's text for an errno, thread-safe (strerror is not).
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

namespace plexus::plugin {

[[nodiscard]] inline std::string errno_text(int error = errno) {
  return std::generic_category().message(error);
}

}  // namespace plexus::plugin
