// SPDX-License-Identifier: Apache-2.0
// This machine as a topology description: NUMA nodes, CPUs and PCIe from hwloc, link speeds from
// sysfs. Ranks on the host and the net plugins' devices are what the caller says. Where a container
// or VM shows no PCIe, a NIC hangs on the first CPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/topo/gpus.hpp"
#include "core/topo/xml_tree.hpp"

struct hwloc_topology;

namespace plexus {

struct HostRank {
  int rank = 0;
  int numa = -1;            // -1: not bound to one NUMA node
  std::string bus_id = {};  // of the GPU that it computes on; empty: it computes on the host
  int device = -1;          // the GPU's number, and its compute capability times 10
  int sm = 0;
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
  float latency_us = 0;
  int rail = -1;   // -1: not known
  int plane = -1;  // -1: not known
};

struct DetectRequest {
  std::vector<HostRank> ranks;
  GpuList gpus;
  std::vector<NetPort> nets;
  std::string sysfs = "/sys";  // tests give another
};

/// This machine as hwloc sees it. Loading takes milliseconds: a process does it once.
/// Threads: any.
class Machine {
 public:
  static Result<Machine> load();
  /// Their numbers, at least one (-1: the kernel knows of none).
  [[nodiscard]] std::vector<int> numa_nodes() const;
  /// Ranks that are bound to no NUMA node stand on the first one.
  [[nodiscard]] XmlElement describe(const DetectRequest& request) const;

 private:
  struct Close {
    void operator()(hwloc_topology* topology) const;
  };
  explicit Machine(hwloc_topology* topology) : topology_(topology) {}
  std::unique_ptr<hwloc_topology, Close> topology_;
};

Result<XmlElement> detect_machine(const DetectRequest& request);

// -- what detection and a topology file (part.hpp) have in common --
/// Puts the rank on the <cpu> of its NUMA node, else on the first element of `system`; one that
/// computes on a GPU, on that, which is added where it is missing.
void add_rank(XmlElement& system, const HostRank& rank);
/// The <pci> of that bus id; nullptr: there is none.
XmlElement* find_pci(XmlElement& element, uint64_t bus_id);
/// Sets the attributes of a <net>.
void describe_port(XmlElement& net, const NetPort& port, int number);

/// The network interfaces of this machine that have a PCI device, or else that can be reached.
std::vector<NetPort> network_interfaces(const std::string& sysfs = "/sys");

}  // namespace plexus
