// SPDX-License-Identifier: Apache-2.0
#include "core/setup/gdr.hpp"

#include <algorithm>

#include "core/base/log.hpp"
#include "core/topo/paths.hpp"
#include "core/topo/settings.hpp"

namespace plexus {
namespace {

constexpr uint32_t kGpuKinds = PLEXUS_MEMORY_CUDA | PLEXUS_MEMORY_DMABUF;
/// From Hopper on, PCIe writes are ordered with the CPU's notification of the GPU.
constexpr int kSmInOrder = 90;

/// A description of the host with only this rank, with computed paths.
Result<System> system_of(int rank,
                         const PeerInfo& info,
                         const HostSource& source,
                         const TopoOptions& options) {
  const std::vector<HostRank> ranks = {{.rank = rank,
                                        .numa = info.numa,
                                        .bus_id = info.bus_id,
                                        .device = info.device,
                                        .sm = info.device_sm}};
  PLEXUS_TRY(machine, describe_host(ranks, source));
  auto built = build_system(machine);
  if (!built) {
    return in_file(describe_topo_file(*source.config), std::move(built).error());
  }
  System system = std::move(built).value();
  // Registration shows whether the GPU supports it; a topology file of the user is trusted.
  if (source.config->topo_file.empty()) {
    for (int gpu = 0; gpu < system.count(NodeType::kGpu); ++gpu) {
      system.node(NodeType::kGpu, gpu).rank.gdr = true;
    }
  }
  compute_paths(system, options);
  return system;
}

std::optional<int> find_node(const System& system, NodeType type, auto is_it) {
  for (int ordinal = 0; ordinal < system.count(type); ++ordinal) {
    if (is_it(system.node(type, ordinal))) {
      return ordinal;
    }
  }
  return std::nullopt;
}

std::string describe(const GpuSlots& slots, const System& system, int gpu, int net) {
  if (slots.send_kinds == 0 && slots.recv_kinds == 0) {
    return fmt::format(
        "no GDR, the path between GPU and NIC is {} (a higher NCCL_NET_GDR_LEVEL allows longer "
        "paths)",
        name(system.path(NodeType::kGpu, gpu, NodeType::kNet, net).type));
  }
  return fmt::format("GDR for {}{}",
                     slots.send_kinds == 0   ? "receives"
                     : slots.recv_kinds == 0 ? "sends"
                                             : "sends and receives",
                     slots.recv_kinds != 0 && slots.flushes ? ", flushed" : "");
}

}  // namespace

GpuSlots choose_gpu_slots(const GdrFacts& facts, const Config& config) {
  const uint32_t offered = facts.pointer_support & kGpuKinds;
  const uint32_t kinds = config.dmabuf_enable ? offered : offered & PLEXUS_MEMORY_CUDA;
  return {.send_kinds = facts.sending == GdrUse::kOff ? 0 : kinds,
          .recv_kinds = facts.receiving == GdrUse::kOff ? 0 : kinds,
          .flushes = config.net_force_flush || facts.force_flush || facts.device_sm < kSmInOrder ||
                     facts.receiving == GdrUse::kPciMode};
}

Result<std::vector<GpuSlots>> choose_gpu_slots(int rank,
                                               const PeerInfo& info,
                                               const HostSource& source) {
  std::vector<GpuSlots> chosen;
  const NetContext& net = *source.net;
  const auto takes_gpu = [&](uint32_t device) {
    return (net.properties(device).pointer_support & kGpuKinds) != 0;
  };
  bool any = false;
  for (uint32_t device = 0; device < net.device_count(); ++device) {
    any = any || takes_gpu(device);
  }
  if (!any) {
    PLEXUS_INFO(kNet, "rank {}: no GDR, the network does not support GPU memory", rank);
    return chosen;
  }
  PLEXUS_TRY(options, read_topo_options(*source.config));
  PLEXUS_TRY(system, system_of(rank, info, source, options));
  const auto gpu =
      find_node(system, NodeType::kGpu, [&](const Node& node) { return node.rank.rank == rank; });
  for (uint32_t device = 0; device < net.device_count(); ++device) {
    const auto nic = find_node(system, NodeType::kNet, [&](const Node& node) {
      return node.net.device == static_cast<int>(device);
    });
    chosen.emplace_back();
    if (!gpu.has_value() || !nic.has_value() || !takes_gpu(device)) {
      continue;
    }
    const NetProperties& properties = net.properties(device);
    chosen.back() = choose_gpu_slots({.sending = gdr_use(system, options, *gpu, *nic, true),
                                      .receiving = gdr_use(system, options, *gpu, *nic, false),
                                      .pointer_support = properties.pointer_support,
                                      .force_flush = properties.force_flush,
                                      .device_sm = info.device_sm},
                                     *source.config);
    PLEXUS_INFO(kNet, "rank {} with device {} ({}): {}", rank, device, properties.name,
                describe(chosen.back(), system, *gpu, *nic));
  }
  return chosen;
}

}  // namespace plexus
