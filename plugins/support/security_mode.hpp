// SPDX-License-Identifier: Apache-2.0
// PLEXUS_NET_SECURITY, for plugins that connect sockets or endpoints.
#pragma once

#include "plugins/support/result.hpp"
#include "security/terms.hpp"

namespace plexus::plugin {

/// `read`: returns the text of a setting, or null.
template <class Read>
[[nodiscard]] Result<security::Mode> read_mode(const Read& read) {
  const char* const text = read(security::kModeSetting);
  const auto mode = security::parse_mode(text == nullptr ? "" : text);
  if (!mode.has_value()) {
    return fail(PLEXUS_INVALID_USAGE, "{}={} is not understood: it takes {}",
                security::kModeSetting, text, security::kModeChoices);
  }
  return *mode;
}

}  // namespace plexus::plugin
