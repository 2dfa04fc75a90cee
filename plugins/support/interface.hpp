// SPDX-License-Identifier: Apache-2.0
// The system's information about a network interface, for the properties of a device. Reads
// /sys/class/net; properties that cannot be read are unknown.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "plugin-api/plexus_net.h"

namespace plexus::plugin {

/// A number from a file in /sys; nullopt: there is none.
inline std::optional<int64_t> read_sys_number(const std::filesystem::path& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (!(file >> value)) {
    return std::nullopt;
  }
  return value;
}

/// The MAC address as a number; nullopt without one.
inline std::optional<uint64_t> read_mac(const std::filesystem::path& path) {
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

/// Text that does not fit is left empty instead of being cut.
template <size_t room>
void copy_text(char (&target)[room], std::string_view text) {
  if (text.size() < room) {
    std::memcpy(target, text.data(), text.size());
  }
}

/// Nothing but the level is known of a path.
inline plexus_net_path_t unknown_path(int32_t level = PLEXUS_NET_LEVEL_UNKNOWN) {
  return {level, PLEXUS_UNKNOWN_U32, PLEXUS_UNKNOWN_U64, PLEXUS_UNKNOWN_U64, PLEXUS_UNKNOWN_U64,
          {}};
}

/// Sets name, PCI path, guid and speed of the interface.
inline void read_interface(const std::string& name, plexus_net_properties_t& properties) {
  const std::filesystem::path folder = std::filesystem::path("/sys/class/net") / name;
  copy_text(properties.name, name);
  std::error_code error;
  const std::filesystem::path card = std::filesystem::canonical(folder / "device", error);
  if (!error) {
    copy_text(properties.pci_path, card.string());
  }
  const std::optional<int64_t> speed = read_sys_number(folder / "speed");
  const bool is_speed_known = speed && *speed > 0 && *speed < PLEXUS_UNKNOWN_U32;
  properties.speed_mbit_per_s = is_speed_known ? static_cast<uint32_t>(*speed) : PLEXUS_UNKNOWN_U32;
  properties.guid = read_mac(folder / "address").value_or(PLEXUS_UNKNOWN_U64);
}

}  // namespace plexus::plugin
