// SPDX-License-Identifier: Apache-2.0
// Which ports become one device: those that the user names, then those that are near each other.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "plugins/net-ib/device.hpp"
#include "plugins/net-ib/settings.hpp"

namespace plexus::net_ib {

/// Where a port's card is. `pci_path`: of its PCI function in sysfs, empty if it has none.
struct PciPlace {
  std::string_view pci_path;
  int32_t numa_node;
};

/// How far apart two cards are, in NCCL's terms; nothing if one of them has no PCI path.
/// - kPort: functions of one PCI device.
/// - kPix: below one PCI switch; kPxb: below several, all below one root port.
/// - kPhb: on one NUMA node; kSys: on one host.
[[nodiscard]] std::optional<MergeLevel> distance_between(const PciPlace& a,
                                                         const PciPlace& b) noexcept;

/// NCCL's order of devices, so that hosts of one kind agree on it: by PCI path, those without one
/// last, in the order given.
void sort_by_pci(std::vector<const Port*>& ports);

/// Joins ports into devices: the groups that the user names, then each port that is left with
/// those that are near it. Ports of different link layers, fabrics or planes are never joined.
[[nodiscard]] Result<std::vector<Device>> merge_ports(std::span<const Port* const> ports,
                                                      const Settings& settings);

}  // namespace plexus::net_ib
