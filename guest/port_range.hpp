// SPDX-License-Identifier: Apache-2.0
// PLEXUS_PORT_RANGE: the ports that Plexus listens on, those of the control plane and of data.
#pragma once

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace plexus {

inline constexpr const char* kPortRangeSetting = "PLEXUS_PORT_RANGE";

/// low 0: any port.
struct PortRange {
  int low = 0;
  int high = 0;
};

/// "low-high" or empty; nullopt: not understood.
inline std::optional<PortRange> parse_ports(std::string_view text) {
  constexpr int kPortMax = 65535;
  PortRange range;
  if (text.empty()) {
    return range;
  }
  const char* const end = text.data() + text.size();
  const auto low = std::from_chars(text.data(), end, range.low);
  const bool dash = low.ec == std::errc() && low.ptr != end && *low.ptr == '-';
  const auto high = dash ? std::from_chars(low.ptr + 1, end, range.high) : low;
  if (!dash || high.ec != std::errc() || high.ptr != end || range.low < 1 ||
      range.high < range.low || range.high > kPortMax) {
    return std::nullopt;
  }
  return range;
}

/// Calls `listen(port)`, which makes a socket listen at a port (0: any) or leaves errno, for the
/// ports of `range` until one is free. False: errno says why the last one was not.
template <class Listen>
bool listen_in_range(PortRange range, const Listen& listen) {
  for (int port = range.low; port <= range.high; ++port) {
    if (listen(static_cast<uint16_t>(port))) {
      return true;
    }
    if (errno != EADDRINUSE && errno != EACCES) {
      return false;
    }
  }
  return false;
}

}  // namespace plexus
