// SPDX-License-Identifier: Apache-2.0
#include "plugins/collnet-aggregator/address.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <charconv>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "guest/interface_choice.hpp"
#include "plugins/support/descriptors.hpp"
#include "plugins/support/errno_text.hpp"

namespace plexus::aggregator {
namespace {

constexpr uint16_t kIpv4 = 4;
constexpr uint16_t kIpv6 = 6;
constexpr int kBacklog = 1024;

const sockaddr_in& v4_of(const Address& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}
const sockaddr_in6& v6_of(const Address& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

struct Interface {
  std::string name;
  Address address;
};

std::vector<Interface> list_interfaces() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) {
    return {};
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(raw, &::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* entry = raw; entry != nullptr; entry = entry->ifa_next) {
    const int family = entry->ifa_addr == nullptr ? AF_UNSPEC : entry->ifa_addr->sa_family;
    if (!is_usable_interface(entry->ifa_flags) || (family != AF_INET && family != AF_INET6)) {
      continue;
    }
    Interface& made = found.emplace_back();
    made.name = entry->ifa_name;
    std::memcpy(&made.address.storage, entry->ifa_addr,
                family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  }
  std::stable_sort(found.begin(), found.end(), [](const Interface& a, const Interface& b) {
    return order_of_address(*a.address.raw()) < order_of_address(*b.address.raw());
  });
  return found;
}

}  // namespace

socklen_t Address::size() const {
  return storage.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

bool Address::is_loopback() const {
  constexpr uint32_t kLoopbackNet = 127;
  constexpr int kHostBits = 24;
  return storage.ss_family == AF_INET6
             ? IN6_IS_ADDR_LOOPBACK(&v6_of(*this).sin6_addr) != 0
             : ntohl(v4_of(*this).sin_addr.s_addr) >> kHostBits == kLoopbackNet;
}

std::string Address::to_string() const {
  char host[NI_MAXHOST] = "?";
  char port[NI_MAXSERV] = "?";
  (void)::getnameinfo(raw(), size(), host, sizeof host, port, sizeof port,
                      NI_NUMERICHOST | NI_NUMERICSERV);
  return storage.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                       : fmt::format("{}:{}", host, port);
}

void Address::store(WireHandle& handle) const {
  if (storage.ss_family == AF_INET) {
    handle.family = kIpv4;
    handle.port = ntohs(v4_of(*this).sin_port);
    std::memcpy(handle.address.data(), &v4_of(*this).sin_addr, sizeof(in_addr));
  } else {
    handle.family = kIpv6;
    handle.port = ntohs(v6_of(*this).sin6_port);
    handle.scope = v6_of(*this).sin6_scope_id;
    std::memcpy(handle.address.data(), &v6_of(*this).sin6_addr, sizeof(in6_addr));
  }
}

Result<Address> Address::load(const WireHandle& handle) {
  if (handle.magic != kHandleMagic || (handle.family != kIpv4 && handle.family != kIpv6) ||
      handle.port == 0) {
    return fail(PLEXUS_INVALID_USAGE,
                "the handle of member 0 was not made by this plugin: use the same collnet plugin "
                "on all ranks");
  }
  Address address;
  if (handle.family == kIpv4) {
    sockaddr_in raw{};
    raw.sin_family = AF_INET;
    raw.sin_port = htons(handle.port);
    std::memcpy(&raw.sin_addr, handle.address.data(), sizeof(in_addr));
    std::memcpy(&address.storage, &raw, sizeof raw);
  } else {
    sockaddr_in6 raw{};
    raw.sin6_family = AF_INET6;
    raw.sin6_port = htons(handle.port);
    raw.sin6_scope_id = handle.scope;
    std::memcpy(&raw.sin6_addr, handle.address.data(), sizeof(in6_addr));
    std::memcpy(&address.storage, &raw, sizeof raw);
  }
  return address;
}

Result<Address> parse_address(std::string_view text) {
  const size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, std::min(colon, text.size()));
  const std::string_view port_text =
      colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  }
  uint16_t port = 0;
  const auto [end, error] =
      std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (host.empty() || error != std::errc() || end != port_text.data() + port_text.size()) {
    return fail(PLEXUS_INVALID_USAGE, "'{}' is not an address: write HOST:PORT or [IPV6]:PORT",
                text);
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  const int failed =
      ::getaddrinfo(std::string(host).c_str(), std::to_string(port).c_str(), &hints, &raw);
  if (failed != 0) {
    return fail(PLEXUS_INVALID_USAGE, "cannot resolve the host of '{}': {}", text,
                ::gai_strerror(failed));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(raw, &::freeaddrinfo);
  Address address;
  std::memcpy(&address.storage, raw->ai_addr, raw->ai_addrlen);
  return address;
}

Result<std::vector<Address>> parse_addresses(std::string_view text) {
  std::vector<Address> addresses;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    PLEXUS_TRY(address, parse_address(text.substr(0, comma)));
    addresses.push_back(address);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return addresses;
}

Result<Address> find_own_address(std::string_view names) {
  const std::vector<Interface> all = list_interfaces();
  std::vector<std::string> allowed;
  std::transform(all.begin(), all.end(), std::back_inserter(allowed),
                 [](const Interface& each) { return each.name; });
  allowed = choose_interfaces(allowed, names);
  const auto at = std::find_if(all.begin(), all.end(), [&](const Interface& each) {
    return std::find(allowed.begin(), allowed.end(), each.name) != allowed.end();
  });
  if (at == all.end()) {
    return fail(
        PLEXUS_INVALID_USAGE,
        "NCCL_SOCKET_IFNAME={} matches no network interface that is up and connected: correct it",
        names);
  }
  return at->address;
}

Result<Listener> listen_at(Address address, PortRange range) {
  Listener made;
  const bool listens = listen_in_range(range, [&](uint16_t port) {
    made.fd = UniqueFd::open([&] {
      return ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    });
    const int on = 1;
    if (port != 0) {
      reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port = htons(port);  // as of IPv4
    }
    return made.fd.is_open() &&
           ::setsockopt(made.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
           ::bind(made.fd.get(), address.raw(), address.size()) == 0 &&
           ::listen(made.fd.get(), kBacklog) == 0;
  });
  socklen_t size = sizeof(made.address.storage);
  if (!listens || ::getsockname(made.fd.get(), reinterpret_cast<sockaddr*>(&made.address.storage),
                                &size) != 0) {
    return fail(PLEXUS_SYSTEM_ERROR, "cannot listen at {}: {}", address.to_string(),
                plugin::refused_descriptor_text());
  }
  return made;
}

void set_options(int fd) noexcept {
  constexpr int kOn = 1;
  // A failure is ignored, because a connection works without these options.
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &kOn, sizeof kOn);
  security::Silence::start_probes(fd, kSilence);
}

}  // namespace plexus::aggregator
