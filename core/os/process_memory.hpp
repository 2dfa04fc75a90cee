// SPDX-License-Identifier: Apache-2.0
// Reads the memory of another process of this host in place (cross-memory attach,
// process_vm_readv), where the kernel allows it. Where it allowed it once and refuses the system
// call later (a seccomp filter that is installed late, other credentials), /proc/PID/mem, opened in
// time, gives the same bytes.
//
// Every process shows a mark with its random id at an address that it tells the others. Each read
// takes the mark with it, in the same system call: a pid that another program has by now is
// detected, and its memory is never taken for the peer's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace plexus {

/// Where this process's mark is. A child made by fork has its own.
uint64_t process_mark_address();

class ProcessMemoryFile;

/// Another process's memory. Threads: any.
class PeerProcess {
 public:
  /// `id`: the process_id() of process `pid`; `mark_address`: its process_mark_address().
  PeerProcess(int32_t pid, uint64_t id, uint64_t mark_address)
      : pid_(pid), id_(id), mark_address_(mark_address) {}

  /// For reads that are refused later. All objects of one process share a descriptor; where it
  /// cannot be had, read() fails then.
  void open_file();

  [[nodiscard]] int32_t pid() const noexcept { return pid_; }
  /// Copies from its memory. 0, or why not, as errno: ESRCH when the process has ended (and its pid
  /// may belong to another one), EPERM when the kernel does not allow it, EFAULT when it has no
  /// such memory. After a failure `target` has any bytes.
  [[nodiscard]] int read(void* target, uint64_t address, size_t size_bytes) const noexcept;
  /// Whether reading is possible, by reading the mark; as read().
  [[nodiscard]] int probe() const noexcept;

 private:
  int32_t pid_;
  uint64_t id_;
  uint64_t mark_address_;
  std::shared_ptr<const ProcessMemoryFile> file_;
};

/// Why the kernel refuses to read other processes' memory, as half a sentence with a remedy.
std::string describe_refused_attach(int error);

}  // namespace plexus
