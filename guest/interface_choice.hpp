// SPDX-License-Identifier: Apache-2.0
// Which of a host's network interfaces is used: NCCL_SOCKET_IFNAME's grammar (a comma list of
// prefixes; a leading `^` excludes them; `=` means full names), and what is better without it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <net/if.h>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

namespace plexus {

class NameFilter {
 public:
  explicit NameFilter(std::string_view text) {
    excludes_ = text.starts_with('^');
    text.remove_prefix(excludes_ ? 1 : 0);
    is_exact_ = text.starts_with('=');
    text.remove_prefix(is_exact_ ? 1 : 0);
    while (!text.empty()) {
      const size_t end = std::min(text.find(','), text.size());
      if (end > 0) {
        names_.emplace_back(text.substr(0, end));
      }
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }
  [[nodiscard]] bool keeps(std::string_view name) const {
    const bool is_named = std::any_of(names_.begin(), names_.end(), [&](const std::string& each) {
      return is_exact_ ? name == each : name.starts_with(each);
    });
    return is_named != excludes_;
  }
  /// It says which interfaces to use, not only which not.
  [[nodiscard]] bool names_some() const noexcept { return !excludes_ && !names_.empty(); }

 private:
  std::vector<std::string> names_;
  bool excludes_ = false;
  bool is_exact_ = false;
};

/// The interfaces of `names` to use: those that `filter` names, else, of those that it does not
/// exclude: those named `ib*`, else all but loopback and the bridges of docker and libvirt, else
/// docker's, else any.
inline std::vector<std::string> choose_interfaces(const std::vector<std::string>& names,
                                                  std::string_view filter) {
  const NameFilter wish(filter);
  std::vector<std::string> all;
  std::copy_if(names.begin(), names.end(), std::back_inserter(all),
               [&](const std::string& name) { return filter.empty() || wish.keeps(name); });
  if (wish.names_some()) {
    return all;
  }
  const auto select = [&](auto keep) {
    std::vector<std::string> kept;
    std::copy_if(all.begin(), all.end(), std::back_inserter(kept), keep);
    return kept;
  };
  auto chosen = select([](std::string_view name) { return name.starts_with("ib"); });
  if (chosen.empty()) {
    chosen = select([](std::string_view name) {
      return name != "lo" && !name.starts_with("docker") && !name.starts_with("virbr");
    });
  }
  if (chosen.empty()) {
    chosen = select([](std::string_view name) { return name.starts_with("docker"); });
  }
  return chosen.empty() ? all : chosen;
}

/// An interface is up and connected to something: a cable, or the other end of a pair. (Those
/// without carrier keep their addresses, where nobody answers.)
inline bool is_usable_interface(unsigned flags) noexcept {
  return (flags & IFF_UP) != 0 && (flags & IFF_RUNNING) != 0;
}

/// How far an address reaches; smaller is better.
enum class AddressReach { kGlobal, kLink, kHost };

inline AddressReach reach_of(const sockaddr& address) noexcept {
  constexpr unsigned kLoopbackNet = 0x7f;
  constexpr unsigned kLinkLocalNet = 0xa9fe;  // 169.254.0.0/16: of a BMC, or without a DHCP server
  if (address.sa_family == AF_INET) {
    const unsigned v4 = ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
    return v4 >> 24 == kLoopbackNet    ? AddressReach::kHost
           : v4 >> 16 == kLinkLocalNet ? AddressReach::kLink
                                       : AddressReach::kGlobal;
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6)    ? AddressReach::kHost
         : IN6_IS_ADDR_LINKLOCAL(&v6) ? AddressReach::kLink
                                      : AddressReach::kGlobal;
}

/// Preference among addresses (smaller is better): by reach, then IPv4 before IPv6.
inline int order_of_address(const sockaddr& address) noexcept {
  return 2 * static_cast<int>(reach_of(address)) + (address.sa_family == AF_INET ? 0 : 1);
}

}  // namespace plexus
