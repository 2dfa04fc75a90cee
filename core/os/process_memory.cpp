// SPDX-License-Identifier: Apache-2.0
#include "core/os/process_memory.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <mutex>
#include <sys/uio.h>
#include <unistd.h>

#include <fmt/format.h>

#include "core/base/immortal.hpp"
#include "core/base/stdio_held.hpp"
#include "core/os/host.hpp"

namespace plexus {
namespace {

constexpr uint64_t kMarkMagic = 0x504c58434d413031;  // "PLXCMA01"

struct ProcessMark {
  uint64_t magic = kMarkMagic;
  uint64_t id = process_id();
};

bool is_refused(int error) { return error == EPERM || error == EACCES || error == ENOSYS; }

}  // namespace

/// /proc/PID/mem. It stays that of the process that has been opened, whoever has the pid later, and
/// has no bytes when that has ended.
class ProcessMemoryFile {
 public:
  explicit ProcessMemoryFile(int32_t pid)
      : fd_(open_above_stdio([pid] {
          return open(fmt::format("/proc/{}/mem", pid).c_str(), O_RDONLY | O_CLOEXEC);
        })) {}
  ~ProcessMemoryFile() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  ProcessMemoryFile(const ProcessMemoryFile&) = delete;
  ProcessMemoryFile& operator=(const ProcessMemoryFile&) = delete;

  [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }

  /// As PeerProcess::read(), but that it does not look at the mark.
  [[nodiscard]] int read(void* target, uint64_t address, size_t size_bytes) const noexcept {
    for (size_t done = 0; done < size_bytes;) {
      const ssize_t copied = pread(fd_, static_cast<std::byte*>(target) + done, size_bytes - done,
                                   static_cast<off_t>(address + done));
      if (copied <= 0) {
        return copied == 0 ? ESRCH : errno == EIO ? EFAULT : errno;
      }
      done += static_cast<size_t>(copied);
    }
    return 0;
  }

 private:
  int fd_;
};

namespace {

/// nullptr: it cannot be opened, or is another process's by its mark.
std::shared_ptr<const ProcessMemoryFile> open_memory(int32_t pid,
                                                     uint64_t id,
                                                     uint64_t mark_address) {
  auto file = std::make_shared<const ProcessMemoryFile>(pid);
  ProcessMark seen{.magic = 0, .id = 0};
  const bool is_its = file->is_open() && file->read(&seen, mark_address, sizeof(seen)) == 0 &&
                      seen.magic == kMarkMagic && seen.id == id;
  return is_its ? file : nullptr;
}

/// Those that are open, by the id of the process.
class MemoryFiles {
 public:
  std::shared_ptr<const ProcessMemoryFile> find_or_open(int32_t pid,
                                                        uint64_t id,
                                                        uint64_t mark_address) {
    const std::lock_guard lock(mutex_);
    auto file = files_[id].lock();
    if (file == nullptr) {
      std::erase_if(files_, [](const auto& entry) { return entry.second.expired(); });
      file = open_memory(pid, id, mark_address);
      files_[id] = file;
    }
    return file;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<const ProcessMemoryFile>> files_;  // guarded by mutex_
};

}  // namespace

void PeerProcess::open_file() {
  file_ = Immortal<MemoryFiles>::instance().find_or_open(pid_, id_, mark_address_);
}

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
    return is_refused(errno) && file_ != nullptr ? file_->read(target, address, size_bytes) : errno;
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
