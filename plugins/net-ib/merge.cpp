// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ib/merge.hpp"

#include <algorithm>

namespace plexus::net_ib {
namespace {

/// "/sys/devices/pci0000:16/0000:16:02.0/0000:17:00.0": names between slashes.
std::vector<std::string_view> split_path(std::string_view path) {
  std::vector<std::string_view> names;
  while (!path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    if (end > 0) {
      names.push_back(path.substr(0, end));
    }
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return names;
}

/// The device apart from its function: "0000:17:00.0" -> "0000:17:00".
std::string_view without_function(std::string_view name) { return name.substr(0, name.rfind('.')); }

/// Whether `name` is that of a PCI function, as bridges have one and root complexes ("pci0000:16")
/// have none.
bool is_pci_function(std::string_view name) {
  return std::count(name.begin(), name.end(), ':') == 2 && name.find('.') != std::string_view::npos;
}

PciPlace place_of(const Port& port) { return {port.pci_path, port.numa_node}; }

bool can_join(const Port& a, const Port& b) {
  return a.attributes.link_layer == b.attributes.link_layer && a.fabric_id == b.fabric_id &&
         a.plane == b.plane;
}

bool is_near(const Port& a, const Port& b, const Settings& settings) {
  const auto distance = distance_between(place_of(a), place_of(b));
  const bool is_other_rail = settings.keeps_rails_apart && a.rail != b.rail;
  return distance && *distance <= settings.merge_level && !is_other_rail && can_join(a, b);
}

Device device_of(std::vector<const Port*> ports) {
  Device device;
  for (const Port* const port : ports) {
    device.name += (device.name.empty() ? "" : "+") + port->name;
  }
  device.ports = std::move(ports);
  return device;
}

Result<void> join_named(std::vector<const Port*>& left,
                        const std::vector<std::string>& names,
                        std::vector<Device>& devices) {
  std::vector<const Port*> joined;
  for (const std::string& name : names) {
    const auto found = std::find_if(left.begin(), left.end(),
                                    [&](const Port* each) { return each->name == name; });
    if (found == left.end()) {
      return fail(PLEXUS_INVALID_USAGE,
                  "NCCL_NET_FORCE_MERGE names {}, which is no usable device or is named twice; "
                  "correct it or NCCL_IB_HCA",
                  name);
    }
    if (!joined.empty() && !can_join(*joined.front(), **found)) {
      return fail(PLEXUS_INVALID_USAGE,
                  "NCCL_NET_FORCE_MERGE joins {} and {}, which are of different link layers, "
                  "fabrics or planes; take them apart",
                  joined.front()->name, name);
    }
    joined.push_back(*found);
    left.erase(found);
  }
  devices.push_back(device_of(std::move(joined)));
  return ok();
}

}  // namespace

std::optional<MergeLevel> distance_between(const PciPlace& a, const PciPlace& b) noexcept {
  const auto from = split_path(a.pci_path);
  const auto to = split_path(b.pci_path);
  if (from.empty() || to.empty()) {
    return std::nullopt;
  }
  const auto fork = std::mismatch(from.begin(), from.end(), to.begin(), to.end());
  const auto steps_up = from.end() - fork.first;
  const auto steps_down = to.end() - fork.second;
  const bool is_one_function = steps_up == 0 && steps_down == 0;
  if (is_one_function || (steps_up == 1 && steps_down == 1 &&
                          without_function(from.back()) == without_function(to.back()))) {
    return MergeLevel::kPort;
  }
  // Below the upstream port of a switch that both are under, each has a downstream port.
  constexpr ptrdiff_t kStepsInSwitch = 2;
  if (fork.first != from.begin() && is_pci_function(*std::prev(fork.first))) {
    return std::max(steps_up, steps_down) <= kStepsInSwitch ? MergeLevel::kPix : MergeLevel::kPxb;
  }
  return a.numa_node == b.numa_node ? MergeLevel::kPhb : MergeLevel::kSys;
}

void sort_by_pci(std::vector<const Port*>& ports) {
  std::stable_sort(ports.begin(), ports.end(), [](const Port* a, const Port* b) {
    const bool has_path = !a->pci_path.empty();
    return has_path != !b->pci_path.empty() ? has_path : a->pci_path < b->pci_path;
  });
}

Result<std::vector<Device>> merge_ports(std::span<const Port* const> ports,
                                        const Settings& settings) {
  std::vector<const Port*> left(ports.begin(), ports.end());
  std::vector<Device> devices;
  for (const std::vector<std::string>& names : settings.merged) {
    PLEXUS_TRY(join_named(left, names, devices));
  }
  while (!left.empty()) {
    const Port& first = *left.front();
    std::vector<const Port*> joined;
    for (const Port* const port : left) {
      const bool is_wanted = port == &first || is_near(first, *port, settings);
      if (is_wanted && joined.size() < kRailsMax) {
        joined.push_back(port);
      }
    }
    std::erase_if(left, [&](const Port* each) {
      return std::find(joined.begin(), joined.end(), each) != joined.end();
    });
    devices.push_back(device_of(std::move(joined)));
  }
  return devices;
}

}  // namespace plexus::net_ib
