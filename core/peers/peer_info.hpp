// SPDX-License-Identifier: Apache-2.0
// What a rank tells the others about itself at init: enough to choose the transport between any
// two.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/result.hpp"

namespace plexus {

/// Plain value, exchanged as bytes between ranks of the same library version.
struct PeerInfo {
  uint64_t process_id = 0;     // random, one per process
  uint64_t host_hash = 0;      // hash of hostname and boot id, or of NCCL_HOSTID
  uint64_t pid_namespace = 0;  // CUDA IPC needs equal ones
  int32_t pid = 0;
  int32_t version = 0;
  uint32_t slot_bytes = 0;  // wish; the smallest wish of all ranks is taken. 0: none
  uint32_t min_channels = 0;
  uint32_t max_channels = 0;
  uint32_t net_channels = 0;  // of a message over the network; as slot_bytes
  uint8_t shm_disable = 0;
  uint8_t p2p_disable = 0;
  uint8_t p2p_direct_disable = 0;
  uint8_t ipc_disable = 0;  // its host refuses CUDA IPC, as was found in init
  uint8_t local_register = 1;
  uint8_t attach = 0;                   // PLEXUS_ATTACH: may read peers' memory, and be read
  uint8_t deterministic = 0;            // PLEXUS_DETERMINISTIC: ranks must agree
  uint8_t net_checksum = 0;             // PLEXUS_NET_CHECKSUM: likewise
  uint8_t selftest = 0;                 // PLEXUS_SELFTEST: likewise
  int64_t attach_bytes = -1;            // PLEXUS_ATTACH_BYTES: ranks must agree
  uint32_t collnet_threshold = 0;       // fewest hosts for a network that reduces; 0: not wanted
  uint32_t cores = 0;                   // the rank may run on
  uint64_t core_set = 0;                // hash of which ones: ranks of equal sets share them
  uint64_t mark_address = 0;            // of its process, for who reads its memory (core/os)
  int32_t shown_fd = -1;                // of memory that peers try to map; -1: it can share none
  int32_t numa = -1;                    // the NUMA node that the rank is bound to; -1: none
  int32_t device = -1;                  // CUDA's number in its process; -1: computes on the host
  uint8_t device_uuid[16] = {};         // its device's, the same in all processes
  uint32_t reached_devices[16] = {};    // hashes of the uuids of peers' devices it can access
  uint32_t device_blocks = 0;           // blocks of the kernel that its device holds at once
  int32_t device_sm = 0;                // its compute capability times 10
  uint32_t device_memory_gb_per_s = 0;  // 0: not known
  char bus_id[16] = {};                 // its device's
  uint64_t algorithms = 0;              // hash of NCCL_ALGO: ranks must agree
  uint64_t protocols = 0;               // of NCCL_PROTO: likewise
  uint64_t programs = 0;                // of the files in PLEXUS_PROGRAM_PATH: likewise
  char host[64] = {};                   // for messages

  [[nodiscard]] bool on_cuda() const { return device >= 0; }
  /// What is this rank's own: 56 bytes, and 96 more for a device.
  [[nodiscard]] std::string own_bytes() const;
  /// The rest but for `host`: mostly equal on all ranks.
  [[nodiscard]] std::string common_bytes() const;
  static Result<PeerInfo> from_bytes(std::string_view own, std::string_view common);
};

/// "rank 4 (node2:1234)", for messages.
std::string describe_rank(int rank, const PeerInfo& info);

/// True for two CUDA ranks whose kernels may use each other's memory. Pure, symmetric.
bool reach_each_other(const PeerInfo& a, const PeerInfo& b);
/// As in PeerInfo::reached_devices; never 0.
uint32_t hash_of_device(const uint8_t (&uuid)[16]);
/// True when two ranks compute on one device.
bool same_device(const PeerInfo& a, const PeerInfo& b);
/// Ranks that compute on the device of `info`, a CUDA rank among `infos`: itself at least.
uint32_t sharers_of(std::span<const PeerInfo> infos, const PeerInfo& info);

}  // namespace plexus
