// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/descriptor.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace plexus {
namespace {

/// A larger table size is taken for garbage.
constexpr uint32_t kTableBytesMax = 64 * 1024;

/// Size of a table or descriptor up to and including `last`, the last field of ABI 1.0.
#define PLEXUS_BYTES_THROUGH(type, last) (offsetof(type, last) + sizeof(type::last))

constexpr bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}
constexpr bool is_printable(char c) { return c >= ' ' && c <= '~'; }

/// The string at `text` if it ends within `room` bytes, else nullopt.
std::optional<std::string_view> bounded(const char* text, size_t room) {
  const void* end = text == nullptr ? nullptr : std::memchr(text, 0, room);
  if (end == nullptr) {
    return std::nullopt;
  }
  return std::string_view(text, static_cast<size_t>(static_cast<const char*>(end) - text));
}

Result<std::string> check_text(const char* what,
                               const char* text,
                               size_t room,
                               bool (*legal)(char)) {
  const std::optional<std::string_view> found = bounded(text, room);
  if (!found) {
    return fail(
        Code::kInvalidUsage,
        "its {} is missing or not zero-terminated within {} bytes; this is a bug in the plugin",
        what, room);
  }
  if (found->empty() || !std::all_of(found->begin(), found->end(), legal)) {
    return fail(Code::kInvalidUsage,
                "its {} is empty or has an invalid character; this is a bug in the plugin", what);
  }
  return std::string(*found);
}

Result<void> check_number(const char* what, uint64_t found, uint64_t least, uint64_t most) {
  if (found < least || found > most) {
    return fail(Code::kInvalidUsage,
                "it reports {} = {}, expected {}..{}; this is a bug in the plugin", what, found,
                least, most);
  }
  return ok();
}

template <class T>
std::optional<T> known(T value, T unknown) {
  return value == unknown ? std::nullopt : std::optional<T>(value);
}

std::optional<std::chrono::nanoseconds> known_time(uint64_t nanoseconds, uint64_t unknown) {
  if (nanoseconds == unknown) {
    return std::nullopt;
  }
  return std::chrono::nanoseconds(static_cast<int64_t>(nanoseconds));
}

Result<std::optional<uint32_t>> check_optional_id(const char* what, int32_t found) {
  if (found < -1) {
    return fail(Code::kInvalidUsage,
                "it reports {} = {}, expected -1 (none) or more; this is a bug in the plugin", what,
                found);
  }
  return found == -1 ? std::nullopt : std::optional<uint32_t>(static_cast<uint32_t>(found));
}

Result<void> check_header(const plexus_plugin_t& plugin) {
  if (plugin.magic != PLEXUS_PLUGIN_MAGIC) {
    return fail(Code::kInvalidUsage,
                "its descriptor starts with {:#010x}, expected {:#010x}: it is not a Plexus plugin",
                plugin.magic, PLEXUS_PLUGIN_MAGIC);
  }
  if (plugin.abi_major != PLEXUS_ABI_MAJOR) {
    return fail(Code::kInvalidUsage,
                "it was built for plugin ABI {}.{}, expected {}.x: use a build of it for this "
                "version of Plexus",
                plugin.abi_major, plugin.abi_minor, PLEXUS_ABI_MAJOR);
  }
  constexpr size_t kLeast = PLEXUS_BYTES_THROUGH(plexus_plugin_t, net);
  if (plugin.struct_size < kLeast || plugin.struct_size > kTableBytesMax) {
    return fail(Code::kInvalidUsage,
                "its descriptor has {} bytes, expected {} or more: it is damaged",
                plugin.struct_size, kLeast);
  }
  if (plugin.kind != PLEXUS_KIND_NET) {
    return fail(Code::kInvalidUsage, "it is a plugin of kind {}, expected {} (net)", plugin.kind,
                PLEXUS_KIND_NET);
  }
  if (plugin.net == nullptr) {
    return fail(Code::kInvalidUsage,
                "its descriptor has no net table; this is a bug in the plugin");
  }
  return ok();
}

/// Copies the plugin's table into a zeroed full-size table.
Result<plexus_net_ops_t> copy_table(const plexus_net_ops_t* table) {
  constexpr size_t kLeast = PLEXUS_BYTES_THROUGH(plexus_net_ops_t, close_listen);
  const uint32_t table_bytes = table->struct_size;
  if (table_bytes < kLeast || table_bytes > kTableBytesMax) {
    return fail(Code::kInvalidUsage,
                "its net table has {} bytes, expected {} or more: it is damaged", table_bytes,
                kLeast);
  }
  const size_t whole_entries_bytes = table_bytes - table_bytes % sizeof(void (*)());
  plexus_net_ops_t ops{};
  std::memcpy(&ops, table, std::min(whole_entries_bytes, sizeof ops));
  return ops;
}

Result<void> check_entries(const plexus_net_ops_t& ops) {
  struct Entry {
    const char* name;
    bool present;
  };
  const Entry mandatory[] = {
      {"init", ops.init != nullptr},
      {"finalize", ops.finalize != nullptr},
      {"device_count", ops.device_count != nullptr},
      {"properties", ops.properties != nullptr},
      {"listen", ops.listen != nullptr},
      {"connect", ops.connect != nullptr},
      {"accept", ops.accept != nullptr},
      {"register_send", ops.register_send != nullptr},
      {"register_recv", ops.register_recv != nullptr},
      {"deregister", ops.deregister != nullptr},
      {"isend", ops.isend != nullptr},
      {"irecv", ops.irecv != nullptr},
      {"test", ops.test != nullptr},
      {"close_send", ops.close_send != nullptr},
      {"close_recv", ops.close_recv != nullptr},
      {"close_listen", ops.close_listen != nullptr},
  };
  for (const Entry& entry : mandatory) {
    if (!entry.present) {
      return fail(Code::kInvalidUsage,
                  "its net table has no entry `{}`; this is a bug in the plugin", entry.name);
    }
  }
  return ok();
}

Result<void> check_capacities(const plexus_net_properties_t& raw) {
  constexpr uint32_t kRequestsLeast = 8;  // number of slots of a connection
  constexpr uint32_t kAllMemory = PLEXUS_MEMORY_HOST | PLEXUS_MEMORY_CUDA | PLEXUS_MEMORY_DMABUF;
  PLEXUS_TRY(
      check_number("message_bytes_max", raw.message_bytes_max, 1, PLEXUS_NET_MESSAGE_BYTES_MAX));
  PLEXUS_TRY(check_number("pointer_support", raw.pointer_support, 1, kAllMemory));
  PLEXUS_TRY(check_number("comms_max", raw.comms_max, 1, UINT32_MAX));
  PLEXUS_TRY(check_number("recvs_max", raw.recvs_max, 1, PLEXUS_NET_RECVS_MAX));
  PLEXUS_TRY(check_number("requests_max", raw.requests_max, kRequestsLeast, UINT32_MAX));
  PLEXUS_TRY(check_number("speed_mbit_per_s", raw.speed_mbit_per_s, 1, UINT32_MAX));
  PLEXUS_TRY(check_number("registration_is_global", raw.registration_is_global, 0, 1));
  PLEXUS_TRY(check_number("force_flush", raw.force_flush, 0, 1));
  PLEXUS_TRY(check_number("takes_pieces", raw.takes_pieces, 0, 1));
  return ok();
}

}  // namespace

std::string describe_plugin(const NetDescriptor& descriptor) {
  if (descriptor.abi_major == 0) {
    return fmt::format("{} ({})", descriptor.name, descriptor.entry);
  }
  return fmt::format("{} {} (plugin ABI {}.{})", descriptor.name, descriptor.version,
                     descriptor.abi_major, descriptor.abi_minor);
}

Result<NetDescriptor> check_net_descriptor(const plexus_plugin_t* plugin) {
  if (plugin == nullptr) {
    return fail(Code::kInvalidUsage, "it does not support this host (plugin ABI {}.{})",
                PLEXUS_ABI_MAJOR, PLEXUS_ABI_MINOR);
  }
  PLEXUS_TRY(check_header(*plugin));
  NetDescriptor descriptor;
  PLEXUS_TRY(name, check_text("name", plugin->name, PLEXUS_NAME_BYTES, is_name_char));
  PLEXUS_TRY(version, check_text("version", plugin->version, PLEXUS_NAME_BYTES, is_printable));
  PLEXUS_TRY(ops, copy_table(plugin->net));
  PLEXUS_TRY(check_entries(ops));
  descriptor.name = std::move(name);
  descriptor.version = std::move(version);
  descriptor.abi_major = plugin->abi_major;
  descriptor.abi_minor = plugin->abi_minor;
  descriptor.ops = ops;
  return descriptor;
}

Result<NetProperties> check_net_properties(const plexus_net_properties_t& raw) {
  NetProperties properties;
  PLEXUS_TRY(name, check_text("device name", raw.name, sizeof raw.name, is_printable));
  properties.name = std::move(name);
  const std::optional<std::string_view> pci_path = bounded(raw.pci_path, sizeof raw.pci_path);
  if (!pci_path || !std::all_of(pci_path->begin(), pci_path->end(), is_printable)) {
    return fail(
        Code::kInvalidUsage,
        "its pci_path is not a printable, zero-terminated string; this is a bug in the plugin");
  }
  properties.pci_path = *pci_path;
  PLEXUS_TRY(check_capacities(raw));
  PLEXUS_TRY(rail_id, check_optional_id("rail_id", raw.rail_id));
  PLEXUS_TRY(plane_id, check_optional_id("plane_id", raw.plane_id));
  properties.guid = known(raw.guid, PLEXUS_UNKNOWN_U64);
  properties.fabric_id = known(raw.fabric_id, PLEXUS_UNKNOWN_U64);
  properties.message_bytes_max = raw.message_bytes_max;
  properties.pointer_support = raw.pointer_support;
  properties.speed_mbit_per_s = known(raw.speed_mbit_per_s, PLEXUS_UNKNOWN_U32);
  properties.latency = known_time(raw.latency_ns, PLEXUS_UNKNOWN_U32);
  properties.port = raw.port;
  properties.comms_max = raw.comms_max;
  properties.recvs_max = raw.recvs_max;
  properties.requests_max = raw.requests_max;
  properties.registration_is_global = raw.registration_is_global != 0;
  properties.force_flush = raw.force_flush != 0;
  properties.takes_pieces = raw.takes_pieces != 0;
  properties.rail_id = rail_id;
  properties.plane_id = plane_id;
  return properties;
}

Result<NetPath> check_net_path(const plexus_net_path_t& raw) {
  constexpr uint32_t kBillion = 1'000'000'000;
  // an hour; a larger number is taken for garbage
  constexpr uint64_t kLatencyMost = 3600ull * kBillion;
  if (raw.level < PLEXUS_NET_LEVEL_UNKNOWN) {
    return fail(
        Code::kInvalidUsage,
        "it reports a path of level {}, expected -1 (unknown) or more; this is a bug in the plugin",
        raw.level);
  }
  if (raw.loss_per_billion != PLEXUS_UNKNOWN_U32) {
    PLEXUS_TRY(check_number("loss_per_billion", raw.loss_per_billion, 0, kBillion));
  }
  if (raw.latency_ns != PLEXUS_UNKNOWN_U64) {
    PLEXUS_TRY(check_number("latency_ns", raw.latency_ns, 0, kLatencyMost));
  }
  NetPath path;
  path.connected = raw.level != PLEXUS_NET_LEVEL_DISCONNECTED;
  if (path.connected && raw.level != PLEXUS_NET_LEVEL_UNKNOWN) {
    path.level = static_cast<uint32_t>(raw.level);
  }
  path.bandwidth_mbit_per_s = known(raw.bandwidth_mbit_per_s, PLEXUS_UNKNOWN_U64);
  path.latency = known_time(raw.latency_ns, PLEXUS_UNKNOWN_U64);
  path.cost = known(raw.cost, PLEXUS_UNKNOWN_U64);
  path.loss_per_billion = known(raw.loss_per_billion, PLEXUS_UNKNOWN_U32);
  return path;
}

}  // namespace plexus
