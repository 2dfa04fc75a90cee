// SPDX-License-Identifier: Apache-2.0
// One host as a graph: ranks, the devices they compute on, PCIe switches, NVLink switches, CPUs
// (one per NUMA node), NICs and their ports (NET). A System is a plain value: build_system makes it
// from a machine's XML, compute_paths (paths.hpp) adds its paths, and after that it is only read.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/topo/bandwidth.hpp"
#include "core/topo/types.hpp"
#include "core/topo/xml_tree.hpp"

namespace plexus {

struct Link {
  LinkType type;
  float gb_per_s;
  int to;  // index into System::nodes
};

/// Link number `link` of node `from`.
struct Hop {
  int from;
  int link;
};

/// How one node reaches another: the bandwidth of the narrowest link and the type of the worst.
struct Path {
  std::vector<Hop> hops;
  float gb_per_s = 0;
  PathType type = PathType::kDis;
  [[nodiscard]] int length() const { return static_cast<int>(hops.size()); }
};

struct RankDetail {  // kGpu
  int rank = -1;
  int device = -1;  // the driver's GPU number
  int sm = 0;       // compute capability times 10
  bool gdr = false;
  bool is_host = false;  // computes on the CPU
};

struct NetDetail {  // kNet
  int device = 0;   // the net plugin's number of the port
  std::string name;
  float gb_per_s = 0;
  float latency_us = 0;
  int port = 0;
  uint64_t guid = 0;  // the adapter's; its ports with equal `port` share bandwidth
  bool gdr = false;
  int connections_max = 0;
  int rail = -1;       // -1: not known
  int plane = -1;      // -1: not known
  int local_gpu = -1;  // ordinal of the rank that this port serves; set with the paths
  /// Ordinal of the first node with this device number. A file may have several (virtual NICs below
  /// every CPU); NCCL knows ports by their numbers and finds the first.
  int first = 0;
};

struct CpuDetail {  // kCpu
  int numa = 0;
  std::string affinity;
  CpuKind kind;
};

struct Node {
  NodeType type = NodeType::kPci;
  int ordinal = 0;       // among the nodes of the same type
  int host = 0;          // one XML may describe several hosts that share an NVLink switch
  uint64_t id = 0;       // bus id; NET: device; CPU: NUMA node
  uint64_t pci_ids = 0;  // vendor, device, and subsystem vendor and device, 16 bits each
  std::vector<Link> links;
  /// Paths to the nodes of each type, by the ordinals of those nodes.
  std::array<std::vector<Path>, kNodeTypes> paths;
  RankDetail rank;
  NetDetail net;
  CpuDetail cpu;
};

struct System {
  std::string name;
  std::vector<Node> nodes;
  std::array<std::vector<int>, kNodeTypes> of_type;  // indexes into nodes
  // the communicator also has ranks on other hosts
  bool inter = false;
  float max_gb_per_s = 0;
  float total_gb_per_s = 0;

  [[nodiscard]] int count(NodeType type) const {
    return static_cast<int>(of_type.at(static_cast<size_t>(type)).size());
  }
  [[nodiscard]] int index_of(NodeType type, int ordinal) const {
    return of_type.at(static_cast<size_t>(type)).at(static_cast<size_t>(ordinal));
  }
  [[nodiscard]] const Node& node(NodeType type, int ordinal) const {
    return nodes[static_cast<size_t>(index_of(type, ordinal))];
  }
  [[nodiscard]] Node& node(NodeType type, int ordinal) {
    return nodes[static_cast<size_t>(index_of(type, ordinal))];
  }
  [[nodiscard]] const Path& path(NodeType from, int ordinal, NodeType to, int to_ordinal) const {
    return node(from, ordinal)
        .paths.at(static_cast<size_t>(to))
        .at(static_cast<size_t>(to_ordinal));
  }
  [[nodiscard]] const Link& link(const Hop& hop) const {
    return nodes[static_cast<size_t>(hop.from)].links[static_cast<size_t>(hop.link)];
  }
  [[nodiscard]] int sm_min() const;
  [[nodiscard]] int sm_max() const;
};

/// Ranks are the `gpu` elements that have a rank, and the `host` elements. As in NCCL a bus id or a
/// port may be described several times: a NIC below one CPU becomes one node, others several.
Result<System> build_system(const XmlElement& machine);

/// A copy without the ranks for which `keep` (by ordinal) is false. As in NCCL their devices stay,
/// and count in the system's bandwidths. Paths are not copied.
System without_ranks(const System& system, const std::vector<bool>& keep);

/// A bus id such as "dddd:bb:dd.f" as a number, from its hexadecimal digits.
uint64_t bus_id_number(std::string_view bus_id);
/// The opposite, as NCCL's files write it.
std::string bus_id_text(uint64_t id);

}  // namespace plexus
