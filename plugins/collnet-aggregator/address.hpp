// SPDX-License-Identifier: Apache-2.0
// Addresses of aggregators as values, from settings, interfaces and handles.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

#include "guest/port_range.hpp"
#include "plugins/collnet-aggregator/wire.hpp"
#include "plugins/support/result.hpp"
#include "plugins/support/unique_fd.hpp"
#include "security/silence.hpp"

namespace plexus::aggregator {

using plugin::fail;
using plugin::ok;
using plugin::Result;
using plugin::UniqueFd;

struct Address {
  sockaddr_storage storage{};

  [[nodiscard]] const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] socklen_t size() const;
  [[nodiscard]] bool is_loopback() const;
  /// "10.0.0.1:4000", "[fe80::1%2]:4000"
  [[nodiscard]] std::string to_string() const;
  void store(WireHandle& handle) const;
  static Result<Address> load(const WireHandle& handle);
};

/// "HOST:PORT" or "[V6]:PORT"; resolves names.
Result<Address> parse_address(std::string_view text);
/// A comma list of addresses; empty: none.
Result<std::vector<Address>> parse_addresses(std::string_view text);
/// The address, with port 0, of an interface that `names` (in NCCL_SOCKET_IFNAME's grammar) allows.
Result<Address> find_own_address(std::string_view names);

struct Listener {
  UniqueFd fd;
  Address address;  // with the port that the system assigned
};
Result<Listener> listen_at(Address address, PortRange range = {});

/// How long the host of a peer may be silent; a peer that is only stopped is alive.
inline constexpr auto kSilence = std::chrono::seconds(20);
inline constexpr const char* kSilent = "its host has not answered for 20 s";
/// Options of every connection: no delay, and detection of a dead host while nothing waits to be
/// sent.
void set_options(int fd) noexcept;

}  // namespace plexus::aggregator
