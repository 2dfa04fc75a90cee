// SPDX-License-Identifier: Apache-2.0
#include "core/os/host.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <fmt/format.h>

#include "core/base/hash.hpp"
#include "core/base/immortal.hpp"
#include "core/os/cpu_set.hpp"

namespace plexus {
namespace {

constexpr int64_t kCoresMax = int64_t{1} << 20;

/// Parses a set in the kernel's format ("0-3,8") and calls `use` for each number; false: malformed.
template <class Use>
bool for_each_core(const std::string& list, const Use& use) {
  const char* at = list.c_str();
  while (*at != '\0') {
    char* end = nullptr;
    const int64_t first = std::strtol(at, &end, 10);
    int64_t last = first;
    if (end == at) {
      return false;
    }
    if (*end == '-') {
      at = end + 1;
      last = std::strtol(at, &end, 10);
    }
    for (int64_t core = std::max<int64_t>(first, 0); core <= last && core < kCoresMax; ++core) {
      use(static_cast<int>(core));
    }
    at = *end == ',' ? end + 1 : end;
    if (*end != ',' && *end != '\0') {
      return false;
    }
  }
  return true;
}

struct RandomId {
  RandomId() {
    if (getrandom(&value, sizeof(value), 0) != sizeof(value)) {
      value = static_cast<uint64_t>(getpid());
    }
  }
  uint64_t value = 0;
};

}  // namespace

HostIdentity host_identity(const std::string& override_text) {
  HostIdentity identity;
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  identity.name = name.data();
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  Fnv1a hash;
  hash.mix(override_text.empty() ? identity.name + boot_id : override_text);
  identity.hash = hash.value();
  struct stat status {};
  if (stat("/proc/self/ns/pid", &status) == 0) {
    identity.pid_namespace = status.st_ino;
  }
  return identity;
}

uint64_t process_id() { return Immortal<RandomId>::instance().value; }

uint64_t memory_bytes() {
  struct sysinfo facts {};
  if (sysinfo(&facts) != 0) {
    return 0;
  }
  return (uint64_t{facts.totalram} + facts.totalswap) * facts.mem_unit;
}

int cores_available() {
  const auto cores = CpuSet::of_thread();
  return cores.has_value() ? cores->count() : 1;
}

uint64_t core_set_hash() {
  Fnv1a hash;
  if (const auto cores = CpuSet::of_thread(); cores.has_value()) {  // else all have the same hash
    const std::string_view bytes = cores->bytes();
    hash.mix(bytes.substr(0, bytes.find_last_not_of('\0') + 1));
  }
  return hash.value();
}

bool bind_to_core(int index) {
  const auto cores = CpuSet::of_thread();
  if (!cores.has_value()) {
    return false;
  }
  int left = index % cores->count();
  size_t core = 0;
  while (!cores->has(core) || left-- > 0) {
    ++core;
  }
  return CpuSet::one(*cores, core).apply();
}

int bound_numa_node(const std::string& sysfs) {
  const auto mine = CpuSet::of_thread();
  if (!mine.has_value()) {
    return -1;
  }
  std::string online;
  std::getline(std::ifstream(sysfs + "/devices/system/node/online"), online);
  int found = -1;
  bool several = false;
  const bool understood = for_each_core(online, [&](int node) {
    std::string list;
    std::getline(std::ifstream(fmt::format("{}/devices/system/node/node{}/cpulist", sysfs, node)),
                 list);
    bool has_mine = false;
    for_each_core(list,
                  [&](int core) { has_mine = has_mine || mine->has(static_cast<size_t>(core)); });
    several = several || (has_mine && found >= 0);
    found = has_mine ? node : found;
  });
  return understood && !several ? found : -1;
}

int numa_node_of_pci(const std::string& bus_id, const std::string& sysfs) {
  int node = -1;
  std::ifstream(fmt::format("{}/bus/pci/devices/{}/numa_node", sysfs, bus_id)) >> node;
  return std::max(node, -1);
}

}  // namespace plexus
