// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-socket/nic.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>

#include <fmt/ranges.h>

#include "plugins/net-socket/transfer.hpp"
#include "plugins/support/descriptors.hpp"
#include "plugins/support/interface.hpp"
#include "plugins/support/name_filter.hpp"

namespace plexus::net_socket {
namespace {

struct FreeInterfaces {
  void operator()(ifaddrs* list) const noexcept { ::freeifaddrs(list); }
};

bool is_wanted(const ifaddrs& entry, AddressFamily family) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) {
    return false;
  }
  switch (entry.ifa_addr->sa_family) {
    case AF_INET:
      return family != AddressFamily::kIpv6;
    case AF_INET6:
      return family != AddressFamily::kIpv4;
    default:
      return false;
  }
}

Address make_address(const sockaddr& raw) {
  Address address;
  const size_t size = raw.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&address.storage, &raw, size);
  return address;
}

/// Preference of addresses (smaller is better): IPv4, then global IPv6, then link-local IPv6.
int rank_of(const Address& address) {
  if (address.family() == AF_INET) {
    return 0;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
  return IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) ? 2 : 1;
}

std::vector<Nic> select(const std::vector<Nic>& nics, const std::function<bool(const Nic&)>& keep) {
  std::vector<Nic> kept;
  std::copy_if(nics.begin(), nics.end(), std::back_inserter(kept), keep);
  return kept;
}

std::vector<std::string> names_of(const std::vector<Nic>& nics) {
  std::vector<std::string> names;
  std::transform(nics.begin(), nics.end(), std::back_inserter(names),
                 [](const Nic& nic) { return nic.name; });
  return names;
}

}  // namespace

std::string Address::text() const {
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

Result<std::vector<Nic>> find_nics(AddressFamily family) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return fail(PLEXUS_SYSTEM_ERROR, "cannot list network interfaces: {}",
                plugin::refused_descriptor_text());
  }
  const std::unique_ptr<ifaddrs, FreeInterfaces> owner(list);
  std::vector<Nic> nics;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (!is_wanted(*entry, family)) {
      continue;
    }
    Nic nic{entry->ifa_name, make_address(*entry->ifa_addr)};
    const auto known = std::find_if(nics.begin(), nics.end(),
                                    [&](const Nic& other) { return other.name == nic.name; });
    if (known == nics.end()) {
      nics.push_back(std::move(nic));
    } else if (rank_of(nic.address) < rank_of(known->address)) {
      known->address = nic.address;
    }
  }
  return nics;
}

Result<std::vector<Nic>> choose_nics(const std::vector<Nic>& nics, std::string_view filter) {
  if (filter.empty()) {
    const std::vector<std::string> names = plugin::default_interfaces(names_of(nics));
    return select(nics, [&](const Nic& nic) {
      return std::find(names.begin(), names.end(), nic.name) != names.end();
    });
  }
  const plugin::NameFilter names(filter);
  std::vector<Nic> chosen = select(nics, [&](const Nic& nic) { return names.keeps(nic.name); });
  if (chosen.empty()) {
    return fail(PLEXUS_INVALID_USAGE,
                "NCCL_SOCKET_IFNAME={} matches no interface that is up and has an address of the "
                "requested family; available: {}",
                filter, fmt::join(names_of(nics), ", "));
  }
  return chosen;
}

void read_properties(const Nic& nic, plexus_net_properties_t& properties) {
  plugin::read_interface(nic.name, properties);
  properties.fabric_id = PLEXUS_UNKNOWN_U64;
  properties.message_bytes_max = PLEXUS_NET_MESSAGE_BYTES_MAX;
  properties.pointer_support = PLEXUS_MEMORY_HOST;
  properties.latency_ns = PLEXUS_UNKNOWN_U32;
  properties.comms_max = UINT16_MAX;  // limited by the ports of an address
  properties.recvs_max = PLEXUS_NET_RECVS_MAX;
  properties.takes_pieces = 1;
  properties.requests_max = kRequests;
  properties.rail_id = -1;
  properties.plane_id = -1;
}

}  // namespace plexus::net_socket
