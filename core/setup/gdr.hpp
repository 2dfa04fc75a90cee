// SPDX-License-Identifier: Apache-2.0
// GPUDirect: with which devices of a network a CUDA rank wants its slots in GPU memory. Decided at
// init, by each rank for itself, from what the plugin takes, the distance of GPU and NIC and the
// user's word (NCCL_NET_GDR_LEVEL, NCCL_NET_GDR_READ, NCCL_NET_GDR_C2C, NCCL_DMABUF_ENABLE); the
// others learn of it with the rank's offers. Whether the GPU and the plugin really do it shows when
// slots are registered (core/transport/net).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/setup/machine.hpp"
#include "core/topo/decisions.hpp"
#include "core/transport/net_set.hpp"
#include "core/transport/peer_info.hpp"

namespace plexus {

/// What is known of a GPU and a NIC.
struct GdrFacts {
  GdrUse sending = GdrUse::kOff;  // by distance and settings
  GdrUse receiving = GdrUse::kOff;
  uint32_t pointer_support = 0;  // PLEXUS_MEMORY_* mask of the NIC
  bool force_flush = false;      // of the NIC
  int device_sm = 0;             // of the GPU
};

/// The NIC's slots for messages of the GPU. Pure.
[[nodiscard]] GpuSlots choose_gpu_slots(const GdrFacts& facts, const Config& config);

/// [devices] of `source.net`, for a rank that computes on CUDA; empty when no device takes GPU
/// memory. Says in an INFO line what is done, and why not.
[[nodiscard]] Result<std::vector<GpuSlots>> choose_gpu_slots(int rank,
                                                             const PeerInfo& info,
                                                             const HostSource& source);

}  // namespace plexus
