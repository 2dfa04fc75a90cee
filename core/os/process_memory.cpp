// SPDX-License-Identifier: Apache-2.0
#include "core/os/process_memory.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sys/uio.h>

#include <fmt/format.h>

#include "core/base/immortal.hpp"
#include "core/os/host.hpp"

namespace plexus {
namespace {

constexpr uint64_t kMarkMagic = 0x504c58434d413031;  // "PLXCMA01"

struct ProcessMark {
  uint64_t magic = kMarkMagic;
  uint64_t id = process_id();
};

}  // namespace

uint64_t process_mark_address() {
  return reinterpret_cast<uintptr_t>(&Immortal<ProcessMark>::instance());
}

int PeerProcess::read(void* target, uint64_t address, size_t size_bytes) const noexcept {
  std::array<uint64_t, 2> seen{};  // as in ProcessMark
  const std::array<iovec, 2> to{{{seen.data(), sizeof(seen)}, {target, size_bytes}}};
  // Addresses in the other process, which this one never follows.
  const std::array<iovec, 2> from{
      {{reinterpret_cast<void*>(mark_address_), sizeof(seen)},  // NOLINT(performance-no-int-to-ptr)
       {reinterpret_cast<void*>(address), size_bytes}}};        // NOLINT(performance-no-int-to-ptr)
  const ssize_t copied = process_vm_readv(pid_, to.data(), to.size(), from.data(), from.size(), 0);
  if (copied < 0 && errno != EFAULT) {
    return errno;
  }
  if (seen[0] != kMarkMagic || seen[1] != id_) {
    return ESRCH;  // not even the mark is there: another program
  }
  return static_cast<size_t>(copied) == sizeof(seen) + size_bytes ? 0 : EFAULT;
}

int PeerProcess::probe() const noexcept {
  uint64_t magic = 0;
  return read(&magic, mark_address_, sizeof(magic));
}

std::string describe_refused_attach(int error) {
  if (error == EPERM) {
    int scope = 0;
    std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
    return scope > 0 ? fmt::format("kernel.yama.ptrace_scope is {}, 0 would allow it", scope)
                     : "the kernel does not allow it: other user, user namespace, capabilities, "
                       "or a seccomp filter of the container (SYS_PTRACE would allow it)";
  }
  return std::strerror(error);
}

}  // namespace plexus
