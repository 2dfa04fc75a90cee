// SPDX-License-Identifier: Apache-2.0
// This machine as a topology description: NUMA nodes, CPUs and PCIe from hwloc, link speeds from
// sysfs. Ranks on the host and the net plugins' devices are what the caller says. Where a container
// or VM shows no PCIe, a NIC hangs on the first CPU.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/topo/xml_tree.hpp"

namespace plexus {

struct HostRank {
  int rank = 0;
  int numa = -1;  // -1: spread over the NUMA nodes
};

/// As a net plugin describes it; the numbers of devices are the order.
struct NetPort {
  std::string name;
  std::string pci_path;  // below /sys; its lowest PCI device counts. Empty: none
  int speed_mbit_per_s = 0;
  int port = 0;
  uint64_t guid = 0;
  bool gdr = false;
  int connections_max = 0;
};

struct DetectRequest {
  std::vector<HostRank> ranks;
  std::vector<NetPort> nets;
  std::string sysfs = "/sys";  // tests give another
};

Result<XmlElement> detect_machine(const DetectRequest& request);

/// The network interfaces of this machine that have a PCI device, or else that can be reached.
std::vector<NetPort> network_interfaces(const std::string& sysfs = "/sys");

}  // namespace plexus
