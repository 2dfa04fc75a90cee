// SPDX-License-Identifier: Apache-2.0
// GPUDirect: the devices of a network for which a CUDA rank wants its slots in GPU memory. Each
// rank decides during init from what the plugin supports, the distance between GPU and NIC, and the
// settings NCCL_NET_GDR_LEVEL, NCCL_NET_GDR_READ, NCCL_NET_GDR_C2C and NCCL_DMABUF_ENABLE. Other
// ranks receive the decision with the rank's offers. Whether GPU and plugin really support it shows
// when slots are registered (core/transport/network/net).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/peers/peer_info.hpp"
#include "core/setup/machine.hpp"
#include "core/topo/decisions.hpp"
#include "core/transport/network/net_set.hpp"

namespace plexus {

/// Facts about a GPU and a NIC.
struct GdrFacts {
  GdrUse sending = GdrUse::kOff;  // from distance and settings
  GdrUse receiving = GdrUse::kOff;
  uint32_t pointer_support = 0;  // PLEXUS_MEMORY_* mask of the NIC
  bool force_flush = false;      // the NIC's
  int device_sm = 0;             // the GPU's
};

/// Placement of the NIC's slots for messages of the GPU. Pure.
[[nodiscard]] GpuSlots choose_gpu_slots(const GdrFacts& facts, const Config& config);

/// [devices] of `source.net`, for a rank that computes on CUDA; empty when no device supports GPU
/// memory. Logs an INFO line with the decision and its reason.
[[nodiscard]] Result<std::vector<GpuSlots>> choose_gpu_slots(int rank,
                                                             const PeerInfo& info,
                                                             const HostSource& source);

}  // namespace plexus
