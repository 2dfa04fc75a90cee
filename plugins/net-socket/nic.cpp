// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-socket/nic.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <optional>

#include <fmt/ranges.h>

#include "plugins/net-socket/transfer.hpp"
#include "plugins/support/errno_text.hpp"

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

/// A global IPv6 address is preferred to a link-local one, IPv4 to both: smaller is better.
int rank_of(const Address& address) {
  if (address.family() == AF_INET) {
    return 0;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
  return IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) ? 2 : 1;
}

std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    if (end > 0) {
      parts.push_back(text.substr(0, end));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::vector<Nic> select(const std::vector<Nic>& nics, const std::function<bool(const Nic&)>& keep) {
  std::vector<Nic> kept;
  std::copy_if(nics.begin(), nics.end(), std::back_inserter(kept), keep);
  return kept;
}

std::vector<Nic> choose_by_default(const std::vector<Nic>& nics) {
  const auto starts_with = [](std::string_view prefix) {
    return [prefix](const Nic& nic) { return nic.name.starts_with(prefix); };
  };
  const auto is_real = [](const Nic& nic) {
    return nic.name != "lo" && !nic.name.starts_with("docker") && !nic.name.starts_with("virbr");
  };
  for (const std::function<bool(const Nic&)>& kind :
       {std::function<bool(const Nic&)>(starts_with("ib")),
        std::function<bool(const Nic&)>(is_real),
        std::function<bool(const Nic&)>(starts_with("docker"))}) {
    if (std::vector<Nic> chosen = select(nics, kind); !chosen.empty()) {
      return chosen;
    }
  }
  return nics;
}

/// One number in a file of /sys; nullopt when it is not there or is none.
std::optional<int64_t> read_sys_number(const std::filesystem::path& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (!(file >> value)) {
    return std::nullopt;
  }
  return value;
}

/// The MAC address as a number; nullopt without one.
std::optional<uint64_t> read_mac(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string text;
  file >> text;
  uint64_t mac = 0;
  for (const char c : text) {
    if (c == ':') {
      continue;
    }
    const auto* const digits = "0123456789abcdef";
    const char* digit = std::strchr(digits, c);
    if (digit == nullptr || c == '\0') {
      return std::nullopt;
    }
    mac = mac << 4 | static_cast<uint64_t>(digit - digits);
  }
  return mac == 0 ? std::nullopt : std::optional<uint64_t>(mac);
}

template <size_t room>
void copy_text(char (&target)[room], std::string_view text) {
  if (text.size() < room) {  // what does not fit stays empty rather than cut
    std::memcpy(target, text.data(), text.size());
  }
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
    return "an unknown address";
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
  ::inet_ntop(AF_INET6, &v6.sin6_addr, host.data(), host.size());
  const std::string scope = v6.sin6_scope_id == 0 ? "" : fmt::format("%{}", v6.sin6_scope_id);
  return fmt::format("[{}{}]:{}", host.data(), scope, ntohs(v6.sin6_port));
}

Result<std::vector<Nic>> find_nics(AddressFamily family) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return fail(PLEXUS_SYSTEM_ERROR, "cannot list network interfaces: {}", plugin::errno_text());
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
    return choose_by_default(nics);
  }
  const std::string_view whole = filter;
  const bool excludes = filter.starts_with('^');
  filter.remove_prefix(excludes ? 1 : 0);
  const bool is_exact = filter.starts_with('=');
  filter.remove_prefix(is_exact ? 1 : 0);
  const std::vector<std::string_view> names = split_list(filter);
  std::vector<Nic> chosen = select(nics, [&](const Nic& nic) {
    const bool is_named = std::any_of(names.begin(), names.end(), [&](std::string_view name) {
      return is_exact ? nic.name == name : nic.name.starts_with(name);
    });
    return is_named != excludes;
  });
  if (chosen.empty()) {
    std::vector<std::string> known;
    std::transform(nics.begin(), nics.end(), std::back_inserter(known),
                   [](const Nic& nic) { return nic.name; });
    return fail(PLEXUS_INVALID_USAGE,
                "NCCL_SOCKET_IFNAME={} matches no interface that is up and has an address of the "
                "wanted family; "
                "there are: {}",
                whole, fmt::join(known, ", "));
  }
  return chosen;
}

void read_properties(const Nic& nic, plexus_net_properties_t& properties) {
  const std::filesystem::path folder = std::filesystem::path("/sys/class/net") / nic.name;
  copy_text(properties.name, nic.name);
  std::error_code error;
  const std::filesystem::path card = std::filesystem::canonical(folder / "device", error);
  if (!error) {
    copy_text(properties.pci_path, card.string());
  }
  const std::optional<int64_t> speed = read_sys_number(folder / "speed");
  const bool is_speed_known = speed && *speed > 0 && *speed < PLEXUS_UNKNOWN_U32;
  properties.guid = read_mac(folder / "address").value_or(PLEXUS_UNKNOWN_U64);
  properties.fabric_id = PLEXUS_UNKNOWN_U64;
  properties.message_bytes_max = PLEXUS_NET_MESSAGE_BYTES_MAX;
  properties.pointer_support = PLEXUS_MEMORY_HOST;
  properties.speed_mbit_per_s = is_speed_known ? static_cast<uint32_t>(*speed) : PLEXUS_UNKNOWN_U32;
  properties.latency_ns = PLEXUS_UNKNOWN_U32;
  properties.comms_max = UINT16_MAX;  // ports of an address
  properties.recvs_max = PLEXUS_NET_RECVS_MAX;
  properties.requests_max = kRequests;
  properties.rail_id = -1;
  properties.plane_id = -1;
}

}  // namespace plexus::net_socket
