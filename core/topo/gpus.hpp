// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine, from the driver's management library (NVML) if present. It is loaded at
// run time, so that nothing depends on it, and the few functions used are declared here. It
// provides what PCI descriptions lack: compute capability, NVLinks with their remote ends, and
// whether peer access works.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.hpp"
#include "core/topo/xml_tree.hpp"

namespace plexus {

struct GpuLink {
  std::string target;  // bus id of the other end
  int count = 0;       // number of links to it
  friend bool operator==(const GpuLink&, const GpuLink&) = default;
};

struct Gpu {
  int device = 0;      // the driver's number
  std::string bus_id;  // "0000:3b:00.0"
  int sm = 0;          // compute capability times 10
  std::vector<GpuLink> links;
};

struct GpuList {
  std::vector<Gpu> gpus;  // by device
  /// Pairs of devices (lower first) between which the driver allows no peer access.
  std::set<std::pair<int, int>> without_p2p;
};

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

/// Empty when the library is missing; an Error when it is present and fails.
Result<GpuList> find_gpus(const std::string& library = kNvmlLibrary);

/// The <gpu> element of a description. `sysfs` gives the class of each NVLink's remote end; an end
/// that is neither one of the GPUs nor in sysfs is taken for an NVLink switch (VMs hide those).
XmlElement describe_gpu(const Gpu& gpu, const GpuList& all, const std::string& sysfs);

}  // namespace plexus
