// SPDX-License-Identifier: Apache-2.0
// Addresses of sockets, and the host's network interfaces as places to listen on: which exist, and
// which of them NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY select.
#pragma once

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstdint>
#include <cstring>
#include <ifaddrs.h>
#include <iterator>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

#include <fmt/ranges.h>

#include "guest/interface_choice.hpp"
#include "plugins/support/descriptors.hpp"
#include "plugins/support/result.hpp"

namespace plexus::plugin {

enum class AddressFamily { kAny, kIpv4, kIpv6 };

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
  [[nodiscard]] std::string text() const {
    std::array<char, INET6_ADDRSTRLEN> host{};
    if (family() == AF_INET) {
      const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
      ::inet_ntop(AF_INET, &v4.sin_addr, host.data(), host.size());
      return fmt::format("{}:{}", host.data(), ntohs(v4.sin_port));
    }
    if (family() != AF_INET6) {
      return "unknown address";
    }
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, host.data(), host.size());
    const std::string scope = v6.sin6_scope_id == 0 ? "" : fmt::format("%{}", v6.sin6_scope_id);
    return fmt::format("[{}{}]:{}", host.data(), scope, ntohs(v6.sin6_port));
  }
};

/// An address as it is sent to peers, in a handle.
struct WireAddress {
  uint16_t family;  // 4 or 6
  uint16_t port;
  std::array<uint8_t, 16> bytes;  // network order; IPv4 in the first four
};

/// `wire` may have any content.
[[nodiscard]] inline bool is_usable(const WireAddress& wire) noexcept {
  return (wire.family == 4 || wire.family == 6) && wire.port != 0;
}

inline WireAddress to_wire(const Address& address) {
  WireAddress wire{};
  if (address.family() == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
    wire.family = 4;
    wire.port = ntohs(v4.sin_port);
    std::memcpy(wire.bytes.data(), &v4.sin_addr, sizeof v4.sin_addr);
  } else {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
    wire.family = 6;
    wire.port = ntohs(v6.sin6_port);
    std::memcpy(wire.bytes.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
  }
  return wire;
}

/// `scope`: the interface for a link-local address, a number of this host that is not sent to
/// peers.
inline Address from_wire(const WireAddress& wire, uint32_t scope) {
  Address address;
  if (wire.family == 4) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(wire.port);
    std::memcpy(&v4.sin_addr, wire.bytes.data(), sizeof v4.sin_addr);
  } else {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(wire.port);
    std::memcpy(&v6.sin6_addr, wire.bytes.data(), sizeof v6.sin6_addr);
    v6.sin6_scope_id = IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) ? scope : 0;
  }
  return address;
}

/// TCP connects a socket to itself when the port that it was given is the one it connects to, where
/// nothing listens.
[[nodiscard]] inline bool is_connected_to_itself(int fd) noexcept {
  Address own;
  Address peer;
  socklen_t own_bytes = sizeof own.storage;
  socklen_t peer_bytes = sizeof peer.storage;
  return ::getsockname(fd, own.raw(), &own_bytes) == 0 &&
         ::getpeername(fd, peer.raw(), &peer_bytes) == 0 && own_bytes == peer_bytes &&
         std::memcmp(&own.storage, &peer.storage, own_bytes) == 0;
}

/// A network interface that is up, with its best address.
struct Nic {
  std::string name;
  Address address;
};

/// Interfaces that are up and connected and have an address of the wanted family, one entry each
/// with its best address, in the system's order.
[[nodiscard]] inline Result<std::vector<Nic>> find_nics(AddressFamily family) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return fail(PLEXUS_SYSTEM_ERROR, "cannot list network interfaces: {}",
                refused_descriptor_text());
  }
  const auto is_wanted = [&](const ifaddrs& entry) {
    if (entry.ifa_addr == nullptr || !is_usable_interface(entry.ifa_flags)) {
      return false;
    }
    const int of_entry = entry.ifa_addr->sa_family;
    return (of_entry == AF_INET && family != AddressFamily::kIpv6) ||
           (of_entry == AF_INET6 && family != AddressFamily::kIpv4);
  };
  struct FreeInterfaces {
    void operator()(ifaddrs* raw) const noexcept { ::freeifaddrs(raw); }
  };
  const std::unique_ptr<ifaddrs, FreeInterfaces> owner(list);
  std::vector<Nic> nics;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (!is_wanted(*entry)) {
      continue;
    }
    Nic nic{entry->ifa_name, {}};
    const bool is_v4 = entry->ifa_addr->sa_family == AF_INET;
    std::memcpy(&nic.address.storage, entry->ifa_addr,
                is_v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    const auto known = std::find_if(nics.begin(), nics.end(),
                                    [&](const Nic& other) { return other.name == nic.name; });
    if (known == nics.end()) {
      nics.push_back(std::move(nic));
    } else if (order_of_address(*nic.address.raw()) < order_of_address(*known->address.raw())) {
      known->address = nic.address;
    }
  }
  return nics;
}

/// Those that NCCL_SOCKET_IFNAME=`filter` asks for. Where it does not name any (choose_interfaces),
/// of these those whose addresses reach furthest. A filter that leaves none is a failure that lists
/// the interfaces.
[[nodiscard]] inline Result<std::vector<Nic>> choose_nics(const std::vector<Nic>& nics,
                                                          std::string_view filter) {
  std::vector<std::string> all;
  std::transform(nics.begin(), nics.end(), std::back_inserter(all),
                 [](const Nic& nic) { return nic.name; });
  const std::vector<std::string> names = choose_interfaces(all, filter);
  std::vector<Nic> chosen;
  std::copy_if(nics.begin(), nics.end(), std::back_inserter(chosen), [&](const Nic& nic) {
    return std::find(names.begin(), names.end(), nic.name) != names.end();
  });
  if (chosen.empty() && !filter.empty()) {
    return fail(PLEXUS_INVALID_USAGE,
                "NCCL_SOCKET_IFNAME={} matches no interface that is up and connected and has an "
                "address of the requested family; available: {}",
                filter, fmt::join(all, ", "));
  }
  if (!NameFilter(filter).names_some() && !chosen.empty()) {
    const auto reach = [](const Nic& nic) { return reach_of(*nic.address.raw()); };
    const AddressReach best =
        reach(*std::min_element(chosen.begin(), chosen.end(),
                                [&](const Nic& a, const Nic& b) { return reach(a) < reach(b); }));
    std::erase_if(chosen, [&](const Nic& nic) { return reach(nic) != best; });
  }
  return chosen;
}

/// The value of NCCL_SOCKET_FAMILY; null: not set.
[[nodiscard]] inline Result<AddressFamily> parse_family(const char* text) {
  const std::string_view family = text == nullptr ? "" : text;
  if (family.empty()) {
    return AddressFamily::kAny;
  }
  if (family == "AF_INET") {
    return AddressFamily::kIpv4;
  }
  if (family == "AF_INET6") {
    return AddressFamily::kIpv6;
  }
  return fail(PLEXUS_INVALID_USAGE,
              "NCCL_SOCKET_FAMILY={} is neither AF_INET nor AF_INET6; correct or unset it", family);
}

}  // namespace plexus::plugin
