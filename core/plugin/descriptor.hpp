// SPDX-License-Identifier: Apache-2.0
// Checks of what a plugin says about itself. All functions are pure: they take the C structs of
// plugin-api as the plugin filled them in and return C++ values, or an error with the value found
// and the value expected. Called once per plugin, context and device.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "plugin-api/plexus_net.h"

#include "core/base/result.hpp"

namespace plexus {

/// A net plugin's descriptor. `ops` is a full-size table: entries newer than the plugin's ABI are
/// null, and only optional entries can be.
struct NetDescriptor {
  std::string name;
  std::string version;                        // "" for NCCL's ABIs, which have none
  std::string entry = "plexus_plugin_query";  // the symbol through which it was loaded
  uint32_t abi_major = 0;
  uint32_t abi_minor = 0;
  plexus_net_ops_t ops{};
};

/// "Socket 0.1.0 (plugin ABI 1.0)", "FastSocket (ncclNetPlugin_v6)".
[[nodiscard]] std::string describe_plugin(const NetDescriptor& descriptor);

/// Checks magic, sizes, ABI, kind, names and mandatory entries, in that order.
[[nodiscard]] Result<NetDescriptor> check_net_descriptor(const plexus_plugin_t* plugin);

/// Properties of a device. nullopt: the plugin does not know.
struct NetProperties {
  std::string name;
  std::string pci_path;  // empty: virtual device
  std::optional<uint64_t> guid;
  std::optional<uint64_t> fabric_id;
  uint64_t message_bytes_max = 0;
  uint32_t pointer_support = 0;  // PLEXUS_MEMORY_* mask
  std::optional<uint32_t> speed_mbit_per_s;
  std::optional<std::chrono::nanoseconds> latency;
  uint32_t port = 0;
  uint32_t comms_max = 0;
  uint32_t recvs_max = 0;
  uint32_t requests_max = 0;
  bool registration_is_global = false;
  bool force_flush = false;
  bool takes_pieces = false;
  std::optional<uint32_t> rail_id;
  std::optional<uint32_t> plane_id;
};

/// Checks the values that `properties` returned: bounded strings, plausible numbers.
[[nodiscard]] Result<NetProperties> check_net_properties(const plexus_net_properties_t& raw);

/// The path between two fabrics. nullopt: not known.
struct NetPath {
  bool connected = true;
  std::optional<uint32_t> level;  // 0: same datacenter, 1: another one, above: further away
  std::optional<uint64_t> bandwidth_mbit_per_s;
  std::optional<std::chrono::nanoseconds> latency;
  std::optional<uint64_t> cost;  // smaller is better; the unit is the plugin's
  std::optional<uint32_t> loss_per_billion;
};

[[nodiscard]] Result<NetPath> check_net_path(const plexus_net_path_t& raw);

/// Upper bound of `device_count`: a plugin that returns more did not write the number.
inline constexpr uint32_t kNetDevicesMax = 1024;

}  // namespace plexus
