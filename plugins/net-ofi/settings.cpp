// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/settings.hpp"

#include <string_view>

#include "plugins/support/number_setting.hpp"
#include "plugins/support/port_setting.hpp"
#include "plugins/support/security_mode.hpp"

namespace plexus::net_ofi {
namespace {

using plugin::read_number;
using Range = plugin::NumberRange;

std::string_view read_text(const ReadVariable& read, const char* name) {
  const char* text = read(name);
  return text == nullptr ? "" : text;
}

Result<bool> read_registration(const ReadVariable& read) {
  const std::string_view when = read_text(read, "PLEXUS_OFI_REGISTER");
  if (when.empty() || when == "auto") {
    return false;
  }
  if (when == "always") {
    return true;
  }
  return fail(PLEXUS_INVALID_USAGE,
              "PLEXUS_OFI_REGISTER={} is neither auto nor always; correct or unset it", when);
}

Result<DeviceMemoryWish> read_device_memory(const ReadVariable& read) {
  const std::string_view wish = read_text(read, "PLEXUS_OFI_HMEM");
  if (wish.empty() || wish == "auto") {
    return DeviceMemoryWish::kIfPossible;
  }
  if (wish == "0" || wish == "1") {
    return wish == "0" ? DeviceMemoryWish::kNo : DeviceMemoryWish::kInsists;
  }
  return fail(PLEXUS_INVALID_USAGE, "PLEXUS_OFI_HMEM={} is not auto, 0 or 1; correct or unset it",
              wish);
}

/// NICs move messages themselves, from memory to memory: TLS has no place there.
Result<security::Mode> read_security(const ReadVariable& read) {
  PLEXUS_TRY(mode, plugin::read_mode(read));
  if (mode == security::Mode::kTls) {
    return fail(
        PLEXUS_INVALID_USAGE,
        "net-ofi cannot encrypt (PLEXUS_NET_SECURITY=tls): use net-socket (NCCL_NET=Socket), "
        "or auth where nobody else reaches the network");
  }
  return mode;
}

}  // namespace

Result<Settings> read_settings(const ReadVariable& read) {
  constexpr int64_t kKibibyte = 1024;
  constexpr int64_t kGibibyte = kKibibyte * kKibibyte * kKibibyte;
  // For smaller messages, the second rail's latency costs more than its bandwidth gains.
  constexpr Range kStripe = {256 * kKibibyte, 128 * kKibibyte, kGibibyte};
  constexpr Range kConnectMs = {60'000, 1, 3'600'000};
  constexpr Range kProbeMs = {1'000, 10, 600'000};

  Settings settings;
  settings.provider = read_text(read, "PLEXUS_OFI_PROVIDER");
  settings.domains = read_text(read, "PLEXUS_OFI_DOMAIN");
  settings.interfaces = read_text(read, "NCCL_SOCKET_IFNAME");
  settings.host_id = read_text(read, "NCCL_HOSTID");
  PLEXUS_TRY(family, plugin::parse_family(read("NCCL_SOCKET_FAMILY")));
  PLEXUS_TRY(registers, read_registration(read));
  PLEXUS_TRY(device_memory, read_device_memory(read));
  PLEXUS_TRY(rails, read_number(read, "PLEXUS_OFI_RAILS", {1, 1, kRailsMax}, settings.limited));
  PLEXUS_TRY(stripe, read_number(read, "PLEXUS_OFI_STRIPE_MIN", kStripe, settings.limited));
  PLEXUS_TRY(connect_ms,
             read_number(read, "PLEXUS_OFI_CONNECT_TIMEOUT_MS", kConnectMs, settings.limited));
  PLEXUS_TRY(probe_ms, read_number(read, "PLEXUS_OFI_PROBE_MS", kProbeMs, settings.limited));
  PLEXUS_TRY(security, read_security(read));
  PLEXUS_TRY(plugin::read_ports(read));  // see load() in library.cpp
  settings.family = family;
  settings.security = security;
  settings.always_registers = registers;
  settings.device_memory = device_memory;
  settings.rails = static_cast<uint32_t>(rails);
  settings.stripe_bytes_min = static_cast<uint64_t>(stripe);
  settings.connect_timeout = std::chrono::milliseconds(connect_ms);
  settings.probe_time = std::chrono::milliseconds(probe_ms);
  return settings;
}

}  // namespace plexus::net_ofi
