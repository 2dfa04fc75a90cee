// SPDX-License-Identifier: Apache-2.0
// The settings of a context, read once at `init` and validated: a bad value is a failure that names
// it. What each means is in README.md. libfabric reads its own FI_* beside them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "plugins/support/result.hpp"

namespace plexus::net_ofi {

using plugin::fail;
using plugin::Failure;
using plugin::ok;
using plugin::Progress;
using plugin::Result;

enum class AddressFamily { kAny, kIpv4, kIpv6 };
enum class DeviceMemoryWish { kIfPossible, kNo, kInsists };

/// Endpoints per connection at most; also holds for what a peer proposes.
inline constexpr uint32_t kRailsMax = 4;

struct Settings {
  std::string provider;                        // PLEXUS_OFI_PROVIDER; empty: by capability
  std::string domains;                         // PLEXUS_OFI_DOMAIN
  std::string interfaces;                      // NCCL_SOCKET_IFNAME, for providers over IP
  AddressFamily family = AddressFamily::kAny;  // NCCL_SOCKET_FAMILY, likewise
  uint32_t rails = 1;                          // PLEXUS_OFI_RAILS
  uint64_t stripe_bytes_min = 0;               // PLEXUS_OFI_STRIPE_MIN
  bool always_registers = false;               // PLEXUS_OFI_REGISTER=always
  DeviceMemoryWish device_memory = DeviceMemoryWish::kIfPossible;  // PLEXUS_OFI_HMEM
  std::chrono::milliseconds connect_timeout{};                     // PLEXUS_OFI_CONNECT_TIMEOUT_MS
  std::chrono::milliseconds probe_time{};                          // PLEXUS_OFI_PROBE_MS
  std::string host_id;                                             // NCCL_HOSTID
};

using ReadVariable = std::function<const char*(const char* name)>;

/// `read` asks the host, or is a test's.
[[nodiscard]] Result<Settings> read_settings(const ReadVariable& read);

}  // namespace plexus::net_ofi
