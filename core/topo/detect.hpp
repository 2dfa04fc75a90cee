// SPDX-License-Identifier: Apache-2.0
// This machine as a topology description. NUMA nodes, CPUs and PCIe come from hwloc, link speeds
// from sysfs; the caller gives host ranks and the net plugins' devices. Where a container or VM
// hides PCIe, a NIC is placed on the first CPU.
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
  std::string bus_id = {};  // the GPU that the rank computes on; empty: it computes on the host
  int device = -1;          // the GPU's number, with its compute capability times 10 in `sm`
  int sm = 0;
};

/// A port as a net plugin describes it. Its device number is its position in the list.
struct NetPort {
  std::string name;
  std::string pci_path;  // below /sys; its lowest PCI device is used; empty: none
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
  std::string sysfs = "/sys";  // replaced in tests
};

/// This machine as hwloc sees it. Loading takes milliseconds: a process does it once.
/// Threads: any.
class Machine {
 public:
  static Result<Machine> load();
  /// The numbers of the NUMA nodes, at least one (-1: the kernel reports none).
  [[nodiscard]] std::vector<int> numa_nodes() const;
  /// Ranks that are not bound to a NUMA node are placed on the first one.
  [[nodiscard]] XmlElement describe(const DetectRequest& request) const;

 private:
  struct Close {
    void operator()(hwloc_topology* topology) const;
  };
  explicit Machine(hwloc_topology* topology) : topology_(topology) {}
  std::unique_ptr<hwloc_topology, Close> topology_;
};

Result<XmlElement> detect_machine(const DetectRequest& request);

// -- shared by detection and topology files (part.hpp) --
/// Adds a host rank to the <cpu> of its NUMA node, or else to the first element of `system`; adds a
/// rank that computes on a GPU to that GPU, which is created when missing.
void add_rank(XmlElement& system, const HostRank& rank);
/// The <pci> with this bus id; nullptr: there is none.
XmlElement* find_pci(XmlElement& element, uint64_t bus_id);
/// Sets the attributes of a <net> element.
void describe_port(XmlElement& net, const NetPort& port, int number);

/// The network interfaces that are up, without loopback: those with a PCI device, or else all of
/// them.
std::vector<NetPort> network_interfaces(const std::string& sysfs = "/sys");

}  // namespace plexus
