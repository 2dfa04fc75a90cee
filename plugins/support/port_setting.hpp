// SPDX-License-Identifier: Apache-2.0
// PLEXUS_PORT_RANGE, for plugins that listen.
#pragma once

#include <cerrno>
#include <netinet/in.h>
#include <sys/socket.h>

#include "guest/port_range.hpp"
#include "plugins/support/errno_text.hpp"
#include "plugins/support/result.hpp"
#include "plugins/support/socket_interface.hpp"
#include "plugins/support/unique_fd.hpp"

namespace plexus::plugin {

/// `read`: returns the text of a setting, or null.
template <class Read>
[[nodiscard]] Result<PortRange> read_ports(const Read& read) {
  const char* const text = read(kPortRangeSetting);
  const auto range = parse_ports(text == nullptr ? "" : text);
  if (!range.has_value()) {
    return fail(PLEXUS_INVALID_USAGE, "{}={} is not understood: it takes low-high in 1..65535",
                kPortRangeSetting, text);
  }
  return *range;
}

/// Listens at `nic` with a socket that `make` returns, at a port of `range`. Sets `address`.
template <class Make>
[[nodiscard]] Result<UniqueFd> listen_at_nic(const Nic& nic,
                                             PortRange range,
                                             const Make& make,
                                             Address& address) {
  Result<UniqueFd> socket = UniqueFd();
  const bool listens = listen_in_range(range, [&](uint16_t port) {
    socket = make(nic.address.family());
    if (socket.has_error()) {
      errno = EMFILE;
      return false;
    }
    address = nic.address;
    const int on = port != 0 ? 1 : 0;  // so that ports of ended connections are free
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);  // the port is at the same place
    v6.sin6_port = htons(port);
    return ::setsockopt(socket.value().get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
           ::bind(socket.value().get(), address.raw(), address.size()) == 0 &&
           ::listen(socket.value().get(), SOMAXCONN) == 0;
  });
  if (socket.has_error()) {
    return socket;
  }
  socklen_t size = sizeof address.storage;
  if (!listens || ::getsockname(socket.value().get(), address.raw(), &size) != 0) {
    return fail(PLEXUS_SYSTEM_ERROR, "cannot listen on {} ({}{}): {}", nic.name, address.text(),
                range.low == 0 ? "" : fmt::format(", ports {} to {}", range.low, range.high),
                errno_text());
  }
  return socket;
}

}  // namespace plexus::plugin
