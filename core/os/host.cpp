// SPDX-License-Identifier: Apache-2.0
#include "core/os/host.hpp"

#include <array>
#include <fstream>
#include <functional>
#include <sched.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/hash.hpp"

namespace plexus {
namespace {}  // namespace

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

uint64_t process_id() {
  static const uint64_t id = [] {
    uint64_t value = 0;
    if (getrandom(&value, sizeof(value), 0) != sizeof(value)) {
      value = static_cast<uint64_t>(getpid());
    }
    return value;
  }();
  return id;
}

int cores_available() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

}  // namespace plexus
