// SPDX-License-Identifier: Apache-2.0
// Network interfaces as devices: which exist, which the user selects, and their properties. The
// choice is a pure function of the list and NCCL_SOCKET_IFNAME.
#pragma once

#include <cstdint>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "plugins/net-socket/settings.hpp"

namespace plexus::net_socket {

/// An IPv4 or IPv6 address with port.
struct Address {
  sockaddr_storage storage{};

  [[nodiscard]] sockaddr* raw() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] const sockaddr* raw() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
  [[nodiscard]] int family() const noexcept { return storage.ss_family; }
  [[nodiscard]] socklen_t size() const noexcept {
    return family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  }
  /// "10.0.0.1:1234" or "[fe80::1%2]:1234".
  [[nodiscard]] std::string text() const;
};

struct Nic {
  std::string name;
  Address address;
};

/// Interfaces that are up and have an address of the wanted family, one entry each (IPv4 first), in
/// the system's order.
[[nodiscard]] Result<std::vector<Nic>> find_nics(AddressFamily family);

/// NCCL_SOCKET_IFNAME: comma list of prefixes; a leading `^` excludes them; `=` means full names.
/// Empty: those named `ib*`, else all but loopback and the bridges of docker and libvirt, else
/// docker's, else any. A filter that leaves none is a failure that lists the interfaces.
[[nodiscard]] Result<std::vector<Nic>> choose_nics(const std::vector<Nic>& nics,
                                                   std::string_view filter);

/// Reads /sys/class/net. Properties that cannot be read are unknown.
void read_properties(const Nic& nic, plexus_net_properties_t& properties);

}  // namespace plexus::net_socket
