// SPDX-License-Identifier: Apache-2.0
// Who and where this process is.
#pragma once

#include <cstdint>
#include <string>

namespace plexus {

struct HostIdentity {
  uint64_t hash = 0;           // equal for processes of one host
  uint64_t pid_namespace = 0;  // equal when they see each other's /proc/PID
  std::string name;
};

/// `override_text` (NCCL_HOSTID) takes the place of hostname and boot id when it is not empty.
HostIdentity host_identity(const std::string& override_text);
/// Random, the same for all calls of this process.
uint64_t process_id();
/// Memory and swap of this machine; 0: the kernel does not say.
uint64_t memory_bytes();
/// Cores the calling thread may run on.
int cores_available();
/// A hash of which ones: threads with equal hashes share them.
uint64_t core_set_hash();
/// Keeps the calling thread on one of them, the `index`-th (modulo their number). False: the system
/// refused.
bool bind_to_core(int index);
/// The NUMA node to which all cores belong that the calling thread may run on; -1: they belong to
/// several, or the kernel does not say.
int bound_numa_node(const std::string& sysfs = "/sys");
/// The NUMA node that a PCI device ("0000:3b:00.0") is near; -1: the kernel does not say.
int numa_node_of_pci(const std::string& bus_id, const std::string& sysfs = "/sys");

}  // namespace plexus
