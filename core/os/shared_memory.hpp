// SPDX-License-Identifier: Apache-2.0
// Memory that several processes of a host map. It is a memfd instead of a file in /dev/shm: a
// killed process leaves no name behind, and a small /dev/shm (64 MiB in many containers) is no
// limit. Where memfd_create is refused it is a file without a name in /dev/shm.
//
// Layout: one page with the mark {magic, id}, then the user's bytes. Another process maps it
// through /proc/PID/fd/FD and checks the mark, which detects a recycled pid or a foreign pid
// namespace; where that fails it asks the owner for the descriptor (memory_server.hpp).
//
//   PLEXUS_TRY(mine, SharedMemory::create(4096));
//   const SharedMemory::Place place{
//       .pid = getpid(), .fd = mine.fd(), .size_bytes = mine.size(), .id = mine.id()};
//   PLEXUS_TRY(seen, SharedMemory::open_peer(place));  // in another process of the host
//   return ok();
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/base/result.hpp"

namespace plexus {

/// Move-only owner of a mapping. Threads: any, for const members.
class SharedMemory {
 public:
  struct Place {
    int pid = 0;
    int fd = -1;
    uint64_t size_bytes = 0;  // the owner's size()
    uint64_t id = 0;
    uint64_t owner = 0;  // the owner's process_id(), who is asked for the descriptor; 0: nobody is
  };

  SharedMemory() = default;
  /// Zeroed, page-aligned, at least one page. `id` 0: a random one.
  static Result<SharedMemory> create(size_t size_bytes, uint64_t id = 0);
  /// The same for this process alone, where the system refuses to share: id() is 0.
  static Result<SharedMemory> create_private(size_t size_bytes);
  /// Maps memory that another process created.
  static Result<SharedMemory> open_peer(const Place& place);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  [[nodiscard]] std::byte* data() const noexcept;
  [[nodiscard]] size_t size() const noexcept { return size_bytes_; }
  /// Size of the mapping, with the page of the mark; 0: there is none.
  [[nodiscard]] size_t mapped_bytes() const noexcept;
  [[nodiscard]] uint64_t id() const noexcept { return id_; }
  /// The descriptor in this process; -1 when opened from a peer.
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  /// Takes `fd`, whatever the result; `path`: what it is, for errors.
  static Result<SharedMemory> map(int fd, const Place& place, std::string_view path);

  std::byte* mapping_ = nullptr;  // the page with the mark, then the data
  size_t size_bytes_ = 0;
  uint64_t id_ = 0;
  int fd_ = -1;
};

}  // namespace plexus
