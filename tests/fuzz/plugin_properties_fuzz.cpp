// SPDX-License-Identifier: Apache-2.0
// Random bytes as a plugin's descriptor, table, properties and paths. Nothing may crash, and
// whatever is accepted must be within the bounds that the core relies on.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/plugin/descriptor.hpp"
#include "core/plugin/registry.hpp"

namespace {

using namespace plexus;

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

/// Removes the first bytes of `data` and returns them as a T, filled up with zeros.
template <class T>
T take(const uint8_t*& data, size_t& size) {
  T value{};
  const size_t n = std::min(size, sizeof value);
  std::memcpy(&value, data, n);
  data += n;
  size -= n;
  return value;
}

void check_properties(const uint8_t* data, size_t size) {
  const auto checked = check_net_properties(take<plexus_net_properties_t>(data, size));
  if (checked.has_value()) {
    const NetProperties& properties = checked.value();
    require(!properties.name.empty() &&
            properties.name.size() < sizeof(plexus_net_properties_t::name));
    require(properties.pci_path.size() < sizeof(plexus_net_properties_t::pci_path));
    require(properties.message_bytes_max > 0 &&
            properties.message_bytes_max <= PLEXUS_NET_MESSAGE_BYTES_MAX);
    require(properties.recvs_max > 0 && properties.recvs_max <= PLEXUS_NET_RECVS_MAX);
    require(properties.comms_max > 0 && properties.requests_max > 0 &&
            properties.pointer_support > 0);
    require(!properties.speed_mbit_per_s || *properties.speed_mbit_per_s > 0);
  } else {
    require(!checked.error().message().empty());
  }
}

void check_path(const uint8_t* data, size_t size) {
  const auto checked = check_net_path(take<plexus_net_path_t>(data, size));
  if (checked.has_value()) {
    require(!checked.value().loss_per_billion ||
            *checked.value().loss_per_billion <= 1'000'000'000);
    require(!checked.value().latency || checked.value().latency->count() >= 0);
  }
}

/// Pointers in a descriptor are trusted to be readable; the memory that they point to is not
/// trusted.
void check_descriptor(const uint8_t* data, size_t size) {
  plexus_plugin_t plugin = take<plexus_plugin_t>(data, size);
  // Exactly as long as a table must be readable: an access beyond it is a finding.
  std::vector<uint8_t> table(sizeof(plexus_net_ops_t));
  const size_t table_bytes = std::min(size, table.size());
  std::memcpy(table.data(), data, table_bytes);
  data += table_bytes;
  size -= table_bytes;
  std::vector<char> name(PLEXUS_NAME_BYTES);
  std::vector<char> version(PLEXUS_NAME_BYTES);
  std::memcpy(name.data(), data, std::min(size, name.size()));
  const size_t rest = size - std::min(size, name.size());
  std::memcpy(version.data(), data + (size - rest), std::min(rest, version.size()));
  plugin.name = name.data();
  plugin.version = version.data();
  plugin.net = reinterpret_cast<const plexus_net_ops_t*>(table.data());
  const auto checked = check_net_descriptor(&plugin);
  if (checked.has_value()) {
    require(!checked.value().name.empty() && checked.value().name.size() < PLEXUS_NAME_BYTES);
    require(checked.value().ops.isend != nullptr && checked.value().ops.close_listen != nullptr);
  }
}

void check_list(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto list = parse_net_plugin_list(text);
  if (list.has_value()) {
    for (const NetPluginEntry& entry : list.value().named) {
      require(!entry.name.empty() && !net_plugin_file_names(entry.name).empty());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  switch (data[0] % 4) {
    case 0:
      check_properties(data + 1, size - 1);
      break;
    case 1:
      check_path(data + 1, size - 1);
      break;
    case 2:
      check_descriptor(data + 1, size - 1);
      break;
    default:
      check_list(data + 1, size - 1);
      break;
  }
  return 0;
}
