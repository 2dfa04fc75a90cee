// SPDX-License-Identifier: Apache-2.0
// Hands the descriptors of this process's shared memory to peers that may not open them in
// /proc/PID/fd: in another user namespace or below another /proc, as in containers, or since one of
// the two has other credentials by now. By a local socket, so only within a network namespace.
//
//   request: the segment's id, 16 hexadecimal digits, and "\n"
//   answer:  a byte with the descriptor; or the socket is closed
//
// Whoever knows the id of a segment gets it. Ids are random and go to the ranks of a communicator
// alone.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <utility>

#include "core/base/immortal.hpp"
#include "core/base/result.hpp"
#include "core/os/local_socket.hpp"

namespace plexus {

/// Lives as long as the process, as its thread does. Threads: any.
class MemoryServer {
 public:
  static MemoryServer& instance() { return Immortal<MemoryServer>::instance(); }

  /// The first call starts the thread. If it cannot, peers see only what /proc shows them, and the
  /// log says so.
  void start();

  /// For a segment that nobody has an id of yet; never 0.
  static Result<uint64_t> new_id();
  /// A segment that exists until remove(); several may have one id, which then are alike.
  void add(uint64_t id, int fd);
  static void remove(uint64_t id, int fd) noexcept;

  /// A descriptor of another process's segment, which the caller closes. `process`: that process's
  /// process_id().
  static Result<int> ask(uint64_t process, uint64_t id);

 private:
  void answer(const LocalSocket& client);

  std::once_flag once_;
  std::mutex mutex_;
  std::set<std::pair<uint64_t, int>> descriptors_;  // with the segment's id; guarded by mutex_
};

}  // namespace plexus
