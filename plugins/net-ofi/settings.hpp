// SPDX-License-Identifier: Apache-2.0
// The settings of a context, read once at `init` and validated: a bad value is a failure that names
// it. README.md explains them. libfabric also reads its own FI_* variables.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plugins/support/result.hpp"
#include "plugins/support/socket_interface.hpp"
#include "security/terms.hpp"

namespace plexus::net_ofi {

using plugin::fail;
using plugin::Failure;
using plugin::ok;
using plugin::Progress;
using plugin::Result;

using plugin::AddressFamily;
enum class DeviceMemoryWish { kIfPossible, kNo, kInsists };

/// Largest number of endpoints per connection; also applies to a peer's proposal.
inline constexpr uint32_t kRailsMax = 4;

struct Settings {
  std::vector<std::string> limited;  // what to tell the user of settings beyond their limits
  std::string provider;              // PLEXUS_OFI_PROVIDER; empty: by capability
  std::string domains;               // PLEXUS_OFI_DOMAIN
  std::string interfaces;            // NCCL_SOCKET_IFNAME, for IP-based providers
  AddressFamily family = AddressFamily::kAny;  // NCCL_SOCKET_FAMILY, for IP-based providers
  uint32_t rails = 1;                          // PLEXUS_OFI_RAILS
  uint64_t stripe_bytes_min = 0;               // PLEXUS_OFI_STRIPE_MIN
  bool always_registers = false;               // PLEXUS_OFI_REGISTER=always
  DeviceMemoryWish device_memory = DeviceMemoryWish::kIfPossible;  // PLEXUS_OFI_HMEM
  std::chrono::milliseconds connect_timeout{};                     // PLEXUS_OFI_CONNECT_TIMEOUT_MS
  std::chrono::milliseconds probe_time{};                          // PLEXUS_OFI_PROBE_MS
  std::string host_id;                                             // NCCL_HOSTID
  security::Mode security = security::Mode::kAuth;                 // PLEXUS_NET_SECURITY, not tls
};

using ReadVariable = std::function<const char*(const char* name)>;

/// `read` queries the host; tests replace it.
[[nodiscard]] Result<Settings> read_settings(const ReadVariable& read);

}  // namespace plexus::net_ofi
