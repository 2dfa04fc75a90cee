// SPDX-License-Identifier: Apache-2.0
// Bandwidth of links in GB/s, from NCCL's tables, so that the same machine gets the same channels.
// The type is float, as in NCCL, because comparisons of these numbers decide whether one more
// channel fits.
#pragma once

#include <span>
#include <string_view>

#include "core/topo/types.hpp"

namespace plexus {

inline constexpr float kLocalGbPerS = 5000;   // inside one device
inline constexpr float kHostRankGbPerS = 10;  // what one core moves to and from memory

inline constexpr int kSmHopper = 90;  // compute capability times 10

/// One NVLink of a GPU with compute capability `sm` (times 10).
float nvlink_gb_per_s(int sm);
/// `speed` in sysfs's notation ("16.0 GT/s PCIe"); unknown or empty: PCIe 3. `width` 0: 16 lanes.
float pci_gb_per_s(std::string_view speed, int width);

struct CpuKind {
  CpuArch arch = CpuArch::kOther;
  CpuVendor vendor = CpuVendor::kOther;
  int family = 0;
  int model = 0;
};
/// Between two NUMA nodes of one host, from the CPU kind of the first.
float cpu_to_cpu_gb_per_s(const CpuKind& cpu);

/// Channel speeds that the search tries, descending.
std::span<const float> channel_speeds(int sm_min, bool inter);

}  // namespace plexus
