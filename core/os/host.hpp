// SPDX-License-Identifier: Apache-2.0
// Identity of this process and host; its CPU cores and NUMA nodes.
#pragma once

#include <cstdint>
#include <string>

namespace plexus {

struct HostIdentity {
  uint64_t hash = 0;           // equal for all processes of one host
  uint64_t pid_namespace = 0;  // equal for processes that see each other's /proc/PID
  std::string name;
};

/// `override_text` (NCCL_HOSTID) replaces hostname and boot id when it is not empty.
HostIdentity host_identity(const std::string& override_text);
/// A random number that is the same for all calls in this process; a child made by fork gets
/// another.
uint64_t process_id();
/// Size of memory plus swap of this machine; 0: the kernel does not report it.
uint64_t memory_bytes();
/// Number of cores that the calling thread may run on.
int cores_available();
/// Hash of the set of cores that the calling thread may run on; equal for threads with equal sets.
uint64_t core_set_hash();
/// Binds the calling thread to one of its cores: number `index` modulo their count. False: the
/// system refused.
bool bind_to_core(int index);
/// The NUMA node of all cores that the calling thread may run on; -1: they belong to several nodes,
/// or the kernel does not report it.
int bound_numa_node(const std::string& sysfs = "/sys");
/// The NUMA node of a PCI device ("0000:3b:00.0"); -1: the kernel does not report it.
int numa_node_of_pci(const std::string& bus_id, const std::string& sysfs = "/sys");

}  // namespace plexus
