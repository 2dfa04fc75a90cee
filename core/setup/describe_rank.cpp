// SPDX-License-Identifier: Apache-2.0
#include "core/setup/describe_rank.hpp"

#include <algorithm>
#include <cstring>
#include <unistd.h>

#include "core/base/hash.hpp"
#include "core/device/choose_device.hpp"
#include "core/os/host.hpp"
#include "core/os/process_memory.hpp"
#include "core/programs/program_set.hpp"
#include "core/setup/collnet.hpp"
#include "kernels/layout/fifo.hpp"

namespace plexus {
namespace {

constexpr uint32_t kSlotBytesMin = 4 * 1024;
constexpr uint32_t kChannelsMax = 64;

/// 0: chosen by all ranks together.
uint32_t slot_bytes_of(const Config& config) {
  if (config.buffsize_bytes == 0) {
    return 0;
  }
  const auto wish = static_cast<uint64_t>(config.buffsize_bytes) / kSlots;
  const uint64_t bounded = std::clamp<uint64_t>(wish, kSlotBytesMin, uint64_t{1} << 29);
  return static_cast<uint32_t>(bounded / kSlotBytesMin * kSlotBytesMin);
}

uint32_t channels_of(int setting, int environment, uint32_t fallback) {
  const int value = environment > 0 ? environment : setting;
  return value > 0 ? std::min(static_cast<uint32_t>(value), kChannelsMax) : fallback;
}

template <size_t size>
void store_text(char (&target)[size], const std::string& text) {
  const size_t length = std::min(text.size(), size - 1);
  std::memcpy(target, text.data(), length);
  target[length] = '\0';
}

uint64_t hash_of(const std::string& text) {
  Fnv1a hash;
  hash.mix(text);
  return hash.value();
}

}  // namespace

Result<void> describe_device(int device, DeviceRuntime* devices, PeerInfo& info) {
  info.device = device;
  if (device == kHostDevice) {
    return ok();
  }
  DeviceRuntime& runtime = *devices;
  PLEXUS_TRY(facts, runtime.describe(device));
  std::memcpy(info.device_uuid, facts.uuid.data(), sizeof(info.device_uuid));
  PLEXUS_TRY(blocks, runtime.blocks_max(device));
  info.device_blocks = static_cast<uint32_t>(std::max(blocks, 0));
  info.device_sm = facts.compute_capability;
  info.device_memory_gb_per_s = facts.memory_gb_per_s;
  store_text(info.bus_id, facts.bus_id);
  if (const int near = numa_node_of_pci(facts.bus_id); near >= 0) {
    info.numa = near;  // in its channel, a rank is placed where its device is
  }
  PLEXUS_TRY(count, runtime.count());
  size_t reached = 0;
  for (int peer = 0; peer < count && reached < std::size(info.reached_devices); ++peer) {
    PLEXUS_TRY(reaches, runtime.can_reach(device, peer));
    if (reaches) {
      PLEXUS_TRY(peers, runtime.describe(peer));
      uint8_t uuid[sizeof(info.device_uuid)];
      std::memcpy(uuid, peers.uuid.data(), sizeof(uuid));
      info.reached_devices[reached++] = hash_of_device(uuid);
    }
  }
  return ok();
}

Result<PeerInfo> describe_rank(const Config& config,
                               const CommConfig& comm_config,
                               DeviceRuntime* devices) {
  PeerInfo info;
  const HostIdentity host = host_identity(config.hostid);
  info.process_id = process_id();
  info.host_hash = host.hash;
  info.pid_namespace = host.pid_namespace;
  info.pid = static_cast<int32_t>(getpid());
  info.version = PLEXUS_VERSION_CODE;
  info.slot_bytes = slot_bytes_of(config);
  info.min_channels = channels_of(comm_config.min_ctas, static_cast<int>(config.min_ctas), 1);
  info.max_channels =
      channels_of(comm_config.max_ctas, static_cast<int>(config.max_ctas), kChannelsMax);
  info.net_channels = static_cast<uint32_t>(config.net_channels);
  info.shm_disable = config.shm_disable ? 1 : 0;
  info.p2p_disable = config.p2p_disable ? 1 : 0;
  info.p2p_direct_disable = config.p2p_direct_disable ? 1 : 0;
  if (wants_collnet(config.collnet_enable, comm_config)) {
    info.collnet_threshold = static_cast<uint32_t>(config.collnet_node_threshold);
  }
  info.cores = static_cast<uint32_t>(cores_available());
  info.core_set = core_set_hash();
  info.numa = bound_numa_node();
  info.mark_address = process_mark_address();
  info.attach = config.attach ? 1 : 0;
  info.attach_bytes = config.attach_bytes;
  info.local_register = config.local_register ? 1 : 0;
  info.deterministic = config.deterministic ? 1 : 0;
  info.net_checksum = config.net_checksum ? 1 : 0;
  info.selftest = config.selftest ? 1 : 0;
  info.algorithms = hash_of(config.algo);
  info.protocols = hash_of(config.proto);
  PLEXUS_TRY(programs, read_program_folders(config.program_path));
  info.programs = hash_of(programs);
  store_text(info.host, host.name);
  PLEXUS_TRY(describe_device(comm_config.device, devices, info));
  return info;
}

}  // namespace plexus
